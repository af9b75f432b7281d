"""Hints of stores, of what states consist of, and of `retape.forward`."""

# ruff: noqa: F401 - the statements of the rows use what is imported

from typing import Any

import numpy as np

import retape
from retape import DiskStore, MemoryStore, Tier, TieredStore
from retape.storage import AsyncStore, CodecStore, Place, RankStore, bounded, copy_tree
from tests.hints.core_runs import SQUARE, KnownPair, Pair, adjoint, one
from tests.hints.processes import alone
from tests.hints.rows import rows, without

EACH = retape.fixed_space(snapshots=2, stage=1)


class Ranks:
    """A communicator of two, the other of which says what a function makes of it."""

    def __init__(self, other: Any = lambda mine: mine) -> None:
        self.other = other

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def allgather(self, sendobj: Any) -> Any:
        return [sendobj, self.other(sendobj)]


def a_step_ahead(mine: Any) -> Any:
    """What a rank says that is one step further."""
    return (mine[0] + 1, mine[1]) if type(mine) is tuple and len(mine) == 2 else mine


def of_pairs(kind: type, **options: Any) -> Any:
    """The derivative of a**8 at 1.5, where each state is a pair."""

    def step(x: Any, k: int) -> Any:
        return kind(x.a * x.a, x.b)

    def back(x: Any, k: int, g: Any) -> Any:
        return kind(2 * x.a * g.a, g.b)

    start = kind(1.5, 0.0)
    given: dict[str, Any] = {"seed": lambda x: kind(1.0, 0.0), "steps": 3} | options
    return retape.adjoint(retape.Program(step, back), start, **given).cotangent.a


def packed(store: Any, factor: float = 1.0) -> Any:
    """The derivative of x**8 at 1.5, with three snapshots of arrays in a store."""
    field = 1.5 * factor * np.ones(40)
    return adjoint(x0=field, seed=np.ones_like, store=store)[0]


def ran(**options: Any) -> Any:
    """A run that waits for its way back: the derivative of x**8 at 1.5."""
    return retape.forward(SQUARE, 1.5, steps=3, **options)


def begun_with(folder: Any, capacity: int) -> int:
    """How many snapshots a store holds to which a run adds as many as have room."""
    store = DiskStore(folder, capacity=capacity)
    store.open("a run")
    try:
        store.keep_only(store.steps())
        for step in range(store.nbytes // 8, capacity):
            store.put(Place(step, step, "disk"), 1.5, 8)
    finally:
        store.close()
    return len(store.steps())


def left_behind(folder: Any) -> Any:
    """A store whose run died, and of which no file can be read."""
    store = DiskStore(folder)
    store.open("a run")
    store.close()
    for name in ("record.npz", "record-before.npz"):
        (folder / name).write_bytes(b"x")
    return store


def no_locks(monkeypatch: Any) -> None:
    """As on a platform without locks of files."""
    monkeypatch.setattr("retape.storage._run_directory.fcntl", None)


PAIRS = """
import dataclasses, retape

@dataclasses.dataclass
class Pair:
    a: float
    b: float

def registered():
    retape.register_state(
        Pair,
        copy=lambda x: Pair(x.a, x.b),
        nbytes=lambda x: 16,
        to_arrays=lambda x: [x.a, x.b],
        from_arrays=lambda tree: Pair(*tree),
    )

def put(folder):
    registered()
    store = retape.DiskStore(folder)
    store.open("a run")
    store.put(retape.storage.Place(0, 0, "disk"), Pair(1.0, 2.0), 16)
    store.close()

def get(folder):
    store = retape.DiskStore(folder)
    store.open("a run")
    try:
        print(store.get(retape.storage.Place(0, 0, "disk")).b)
    except retape.RetapeError as error:
        print(error)

"""


def another_process(folder: Any, prepares: str = "") -> str:
    """What a second process reads of what a first one has written."""
    if not any(folder.glob("*.npz")):
        alone(f"{PAIRS}put({str(folder)!r})")
    return alone(f"{PAIRS}{prepares}\nget({str(folder)!r})")


ROWS = rows(
    "8 * 1.5**7",
    r"""
adjoint(plan=retape.tiers(levels=[Tier('a', 1), Tier('b', 1), Tier('c', 3)]),
  store=TieredStore(MemoryStore(), DiskStore(tmp_path)))
says: Pass one of as many parts, the nearest first, as in `TieredStore(near,
    TieredStore(next, far))`
near, next, far = MemoryStore(), MemoryStore(), DiskStore(tmp_path)
tiers = retape.tiers(levels=[Tier('a', 1), Tier('b', 1), Tier('c', 3)])
adjoint(plan=tiers, store=TieredStore(near, TieredStore(next, far)))

TieredStore(DiskStore(tmp_path), MemoryStore())
says: Pass a `MemoryStore`
store = TieredStore(MemoryStore(), DiskStore(tmp_path))
adjoint(store=store, plan=retape.tiers(memory=1, disk=2))

adjoint(plan=EACH, store=RankStore(DiskStore(tmp_path / 'a'),
  Ranks(a_step_ahead)))
says: Pass the same number of steps and the same plan on all of them, and let `done`
    as: Ranks()
adjoint(plan=EACH, store=RankStore(DiskStore(tmp_path / 'b'), Ranks()))

RankStore(MemoryStore(), Ranks())
says: Pass a `DiskStore`
adjoint(store=RankStore(DiskStore(tmp_path), Ranks()))

RankStore(DiskStore(tmp_path), 2)
says: Pass `mpi4py.MPI.COMM_WORLD`  as: Ranks()
adjoint(store=RankStore(DiskStore(tmp_path), Ranks()))

AsyncStore(MemoryStore())
says: Pass a store that outlives its process, such as a `DiskStore`
adjoint(store=AsyncStore(DiskStore(tmp_path)))

CodecStore('disk')
says: Pass a store, such as a `DiskStore`
packed(CodecStore(DiskStore(tmp_path)))

MemoryStore().record_due()
says: Pass one that does, such as a `retape.DiskStore`
retape.DiskStore(tmp_path).record_due()
gives: True

packed(CodecStore(MemoryStore(), 'float16'), 1e5)
says: pass 'bfloat16' or `retape.storage.bounded(relative=1e-4)`
packed(CodecStore(MemoryStore(), retape.storage.bounded(relative=1e-4)))

CodecStore(MemoryStore(), 'zip')
PlanError says: Pass {}, or `retape.storage.bounded(relative=1e-4)`
packed(CodecStore(MemoryStore(), retape.storage.bounded(relative=1e-4)))

MemoryStore(capacity='2 GiB')
says: Pass an integer, or bytes as `capacity_bytes="2 GiB"`
adjoint(store=MemoryStore(capacity_bytes='2 GiB'))

of_pairs(Pair)
says: Give a class of your own the methods `copy`
def copied(x):
    return x.copy()
copied(KnownPair(0.0, 0.0))
of_pairs(KnownPair)

another_process(tmp_path)
says: Call `retape.register_state`
another_process(tmp_path, 'registered()')  # calls retape.register_state
gives: '2.0'

run = ran()
run.gradient(one)
run.gradient(one)
says: Pass several seeds to `gradients`
run = ran()
[g.cotangent for g in run.gradients([one, lambda x: 2.0])]
gives: [8 * 1.5**7, 2 * 8 * 1.5**7]
says: call `retape.forward`
retape.forward(SQUARE, 1.5, steps=3).gradient(one).cotangent

ran().gradient()
says: Pass `seed`
ran().gradient(seed=one).cotangent

ran(store=DiskStore(tmp_path))
says: Pass a `retape.MemoryStore`
ran(store=retape.MemoryStore()).gradient(one).cotangent
says: call `retape.adjoint`
retape.adjoint(SQUARE, 1.5, seed=one, steps=3,
  store=DiskStore(tmp_path)).cotangent

import jax
jax.jit(lambda x: adjoint(x0=x))(1.5)
says: Call it outside of `jax.jit`
import jax
adjoint(x0=jax.jit(lambda x: x)(1.5))

import torch
torch.func.grad(lambda x: adjoint(x0=x, seed=torch.ones_like))(
  torch.tensor(1.5))
says: Call `retape.adjoint`
import torch
found = retape.adjoint(SQUARE, torch.tensor(1.5), seed=torch.ones_like,
  steps=3).cotangent
float(found)

import torch
x = torch.ones(3)
copy_tree([x, x[1:]])
says: Give it memory of its own, by `.clone()`
import torch
x = torch.ones(3)
copy_tree([x, x[1:].clone()])[1].tolist()
gives: [1.0, 1.0]

import jax
of_doubles(tmp_path, jax.enable_x64(False))
says: Set `jax_enable_x64`
import jax
with jax.enable_x64(True):
    assert jax.config.jax_enable_x64
    found = of_doubles(tmp_path, jax.enable_x64(True))
found
gives: [1.0, 1.0]

no_locks(monkeypatch)
adjoint(store=DiskStore(tmp_path))
says: Use a `MemoryStore`
no_locks(monkeypatch)
adjoint(store=MemoryStore())

DiskStore('memory://of-a-hint')
StoreError says: Write `retape.storage.RemoteStore({})`
adjoint(store=retape.storage.RemoteStore('memory://of-a-hint'))

DiskStore('')
StoreError says: Write `retape.DiskStore(".")`
monkeypatch.chdir(tmp_path)
adjoint(store=retape.DiskStore("."))

begun_with(tmp_path, capacity=2)
begun_with(tmp_path, capacity=1)
StoreError says: call `clear()`
retape.DiskStore(tmp_path).clear()
begun_with(tmp_path, capacity=1)
gives: 1

left_behind(tmp_path / 'a').open('a run')
says: Call `clear()`
store = left_behind(tmp_path / 'b')
store.clear()
adjoint(store=store)
""",
)


def of_doubles(folder: Any, within: Any) -> Any:
    """What a store gives back of two doubles of JAX's, in another setting."""
    import jax
    import jax.numpy as jnp

    store = DiskStore(folder)
    store.open("a run")
    try:
        with jax.enable_x64(True):
            store.put(Place(0, 0, "disk"), jnp.ones(2), 16)
        with within:
            return store.get(Place(0, 0, "disk"))
    finally:
        store.close()
