"""Hints on runs of step functions: `retape.adjoint`, its checks and the driver."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import ctypes
import datetime
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import retape
from retape.driver import ToyMachine, run
from retape.storage import RankStore
from retape.testing import check_machine
from tests.hints.processes import alone
from tests.hints.rows import rows, without
from tests.programs import run_program


def step(x: Any, k: int) -> Any:
    """One step: a square."""
    del k
    return x * x


def reverse_step(x: Any, k: int, g: Any) -> Any:
    del k
    return 2 * x * g


SQUARE: Any = retape.Program(step, reverse_step)


def adjoint(**options: Any) -> Any:
    """The derivative of x**8 at 1.5, as three squarings: 8 * 1.5**7."""
    given = {
        "step": step, "reverse_step": reverse_step, "x0": 1.5, "seed": one, "steps": 3,
    }  # fmt: skip
    return run_program(**given | options).cotangent


def diagnose(**options: Any) -> Any:
    """The same, watched."""
    return adjoint(**options, call=retape.diagnose)


def check(**options: Any) -> bool:
    """The same, tested."""
    given = {"step": step, "reverse_step": reverse_step, "x0": np.ones(2), "steps": 3}
    return run_program(**given | options, call=retape.check_adjoint).ok


def one(x: Any) -> Any:
    del x
    return 1.0


def growing(x: Any, k: int) -> Any:
    """A step of another form where the state is a little larger."""
    return (x * x, 0.0) if float(np.sum(x)) > 2.0 else x * x


def taped(x: Any, k: int) -> Any:
    """A step, and what its adjoint reads: the two ends of the step."""
    return x * x, (x, x * x)


def in_a_thread(call: Any) -> Any:
    """What a call gives, or raises, in another thread than the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


class Pair:
    """A state that is not known here: two numbers."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b


class KnownPair(Pair):
    """The same, with what a state of one's own has."""

    def copy(self) -> "KnownPair":
        return KnownPair(self.a, self.b)

    def nbytes(self) -> int:
        return 16

    def to_arrays(self) -> Any:
        return [self.a, self.b]

    @classmethod
    def from_arrays(cls, arrays: Any) -> "KnownPair":
        return cls(*arrays)


ROWS = [
    *rows(
        "True",
        r"""
retape.grad
AttributeError says: Write `import retape.jax`
import retape.jax
callable(retape.jax.grad)

unloaded(monkeypatch, 'interop')
retape.interop
AttributeError says: Write `import retape.interop`
unloaded(monkeypatch, 'interop')
import retape.interop
callable(retape.interop.to_checkpoint_schedules)

check(**OF_PARAMETERS)
KeyError says: pass `value`  as: value=
check(**OF_PARAMETERS, value=lambda x: x['x'].sum(),
  seed=lambda x: {'x': np.ones(2), 'p': 0.0})

check(step=growing, steps=1, seed=np.ones_like,
  value=lambda x: float(np.sum(x[0] if type(x) is tuple else x)))
says: Pass `tangent=`
check(tangent=lambda x, k, v: 2 * x * v)

check_machine(Opaque(9))
says: Pass `view=`
seen = lambda value: value.count if type(value) is Held else value
len(check_machine(Opaque(9), view=seen)) > 5

import retape.viz
retape.viz.draw_text(3)
ScheduleError says: Pass a stream of actions, such as
    `retape.schedule.Schedule(20, snapshots=3)`
import retape.viz
retape.viz.draw_text(retape.schedule.Schedule(20, snapshots=3)) != ''
""",
    ),
    *rows(
        "8 * 1.5**7",
        r"""
adjoint(plan=retape.tiers(memory=1, disk=2))
says: Pass a `retape.TieredStore`
store = retape.TieredStore(retape.MemoryStore(), retape.DiskStore(tmp_path))
adjoint(plan=retape.tiers(memory=1, disk=2), store=store)
says: or `store=retape.MemoryStore()`
adjoint(plan=retape.tiers(memory=1, disk=2), store=retape.MemoryStore())

retape.adjoint(SQUARE, 1.5, steps=3)
PlanError says: Pass `seed`
retape.adjoint(SQUARE, 1.5, steps=3, seed=one).cotangent
says: or a program with `cost` and `cost_gradient`  as: cost_gradient=
adjoint(seed=None, cost=lambda x, k: x,
  cost_gradient=one_more)
gives: 1 + 2 * 1.5 + 4 * 1.5**3 + 8 * 1.5**7

adjoint(plan=retape.fixed_space(snapshots=3, offload='host'))
says: pass `store`
adjoint(plan=retape.fixed_space(snapshots=3), store=retape.MemoryStore())

adjoint(plan='fixed')
PlanError says: Pass one, such as `retape.fixed_space(snapshots=20)`
adjoint(plan=retape.fixed_space(snapshots=20))

adjoint(store='memory')
StoreError says: Pass a `retape.MemoryStore()`
adjoint(store=retape.MemoryStore())

retape.adjoint(step, 1.5, seed=one, steps=3)
PlanError says: Pass `retape.Program(step, reverse_step)`
retape.adjoint(THE_CODE, 1.5, seed=one, steps=3).cotangent

diagnose(hidden=True)
says: Call `retape.adjoint`
retape.adjoint(SQUARE, 1.5, seed=one, steps=3).cotangent

adjoint(progress=3)
says: Pass `True`
adjoint(progress=True)

jobs(0.2, retape.fixed_space(snapshots=1, stage=60), tmp_path / 'one')
says: Pass a plan with `stage={}`
jobs(60, retape.fixed_space(snapshots=1, THE_CODE), tmp_path / 'another')
gives: 81.0

diagnose(growth=0.5)
says: Pass how many times larger cotangents may become, for example `growth=1e6`
diagnose(growth=1e6)

begun(tmp_path, 2.0, dies_at=3)
begun(tmp_path, 3.0)
says: call `clear()`
begun(tmp_path, 2.0, dies_at=3)
retape.DiskStore(tmp_path).clear()
begun(tmp_path, 3.0)
gives: 3.0**29

with retape.interruptible(time_limit=60):
    adjoint()
says: Pass `store=retape.DiskStore(...)`
with retape.interruptible(time_limit=60):
    found = adjoint(store=retape.DiskStore(tmp_path))
found

retape.interruptible(time_limit='an hour')
PlanError says: pass a number of seconds, or a `datetime.timedelta`
hour = datetime.timedelta(hours=1)
retape.interruptible(time_limit=hour).time_limit
gives: 3600.0

in_a_thread(retape.interruptible().__enter__)
says: Pass `signals=()`
store = retape.DiskStore(tmp_path)
def call():
    with retape.interruptible(signals=()):
        return adjoint(store=store)
in_a_thread(call)
says: call `request`
limit, store = retape.interruptible(signals=()), retape.DiskStore(tmp_path)
def call():
    with limit:
        limit.request('the queue is closed')
        try:
            return adjoint(store=store)
        except retape.RunInterrupted as ended:
            return type(ended).__name__
in_a_thread(call)
gives: 'RunInterrupted'

adjoint(reuse=True)
RetapeWarning says: Pass `store=retape.DiskStore(directory)`
directory = tmp_path
adjoint(store=retape.DiskStore(directory), reuse=True)

adjoint(reuse='yes', store=retape.DiskStore(tmp_path))
PlanError says: pass `True`
adjoint(reuse=True, store=retape.DiskStore(tmp_path))

adjoint(plan=['advance'])
says: Pass those of `retape.schedule`
from retape.schedule import Reverse
adjoint(plan=retape.schedule.Schedule(3, snapshots=2))

adjoint(plan=retape.schedule.Schedule(2, 1), steps=None, done=lambda x: x > 25)
says: Pass a plan, such as `retape.fixed_space(snapshots=20)`
adjoint(
    plan=retape.fixed_space(snapshots=20), steps=None, done=lambda x: x > 25
)

alone(f'{THREADS}{HIDDEN}tell(3)')
slow says: Set `OMP_NUM_THREADS=1`  as: OMP_NUM_THREADS='1'
alone(f'{THREADS}{HIDDEN}tell(3)', OMP_NUM_THREADS='1')
gives: '9.0'

alone(f'{HIDDEN}limit()\ntell(20)', OMP_NUM_THREADS='1')
says: Use a plan with fewer snapshots and `stage=1`  as: tell(2)
alone(f'{HIDDEN}limit()\ntell(2)', OMP_NUM_THREADS='1')
gives: '9.0'
""",
    ),
]


HIDDEN = """
import resource, retape

state = [1.0]

def step(x, k):
    state[0] += 1.0

def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))

def tell(snapshots):
    plan = retape.fixed_space(snapshots=snapshots, stage=1)
    try:
        print(retape.adjoint(
            retape.Program(
                step, lambda x, k, g: g + state[0] * (k == 7), hidden=True
            ),
            None, seed=lambda x: 1.0, steps=30, plan=plan,
        ).cotangent)
    except retape.RetapeError as error:
        print(error)

"""
"""A run whose state nobody sees: at step 7 it is 8."""
THREADS = """
import torch
torch.ones(300, 300) @ torch.ones(300, 300)
"""


def jobs(time_limit: float, plan: Any, folder: Any) -> Any:
    """The last state of a run of 80 short steps, in jobs of limited time."""

    def slow(x: Any, k: int) -> Any:
        time.sleep(0.005)
        return x + 1.0

    while True:
        with suppress(retape.RunInterrupted):
            with retape.interruptible(time_limit=time_limit):
                return retape.adjoint(
                    retape.Program(slow, lambda x, k, g: g),
                    1.0,
                    seed=one,
                    steps=80,
                    plan=plan,
                    store=retape.DiskStore(folder),
                    key="eighty",
                ).state


def begun(folder: Any, factor: float, dies_at: int = -1) -> Any:
    """The derivative of a run of 30 products, of which some die on their way back.

    What it reads lies in memory of C's, where no process sees the difference.
    """
    hidden, end = ctypes.c_double(factor), ctypes.c_long(dies_at)

    def back(x: Any, k: int, g: Any) -> Any:
        if k == end.value:
            raise InterruptedError
        return (hidden.value if k else 1.0) * g

    with suppress(InterruptedError):
        return retape.adjoint(
            retape.Program(lambda x, k: (hidden.value if k else 1.0) * x, back),
            1.0,
            seed=one,
            steps=30,
            plan=retape.fixed_space(snapshots=3),
            store=retape.DiskStore(folder, every=0),
        ).cotangent


class Held:
    """A result that nobody knows how to compare."""

    def __init__(self, count: Any) -> None:
        self.count = count


class Opaque(ToyMachine):
    def finish(self, cotangent: Any) -> Any:
        return Held(super().finish(cotangent))


def unloaded(monkeypatch: Any, part: str) -> None:
    """As if a part of the library had not been imported."""
    monkeypatch.delitem(sys.modules, f"retape.{part}", raising=False)
    monkeypatch.delattr(retape, part, raising=False)


def one_more(x: Any, k: int) -> Any:
    del x, k
    return 1.0


OF_PARAMETERS: dict[str, Any] = {
    "step": lambda x, k: {"x": x["x"] ** 2},
    "reverse_step": lambda x, k, g: {"x": 2 * x["x"] * g["x"], "p": g["p"] + k},
    "x0": {"x": np.ones(2)},
}
"""An adjoint that accumulates the gradient of a parameter beside the state's."""
