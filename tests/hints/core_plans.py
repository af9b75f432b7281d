"""Hints on plans and schedules, in Python and on the command line."""

# ruff: noqa: F401 - the statements of the rows use what is imported

from typing import Any

import numpy as np

import retape
from retape.cli import main
from retape.schedule import Chain, Schedule
from tests.hints.core_runs import adjoint
from tests.hints.jax_gradients import X, jax, looped, scanned
from tests.hints.rows import rows
from tests.hints.vlad_programs import LOOP
from tests.hints.vlad_programs import run as vlad


def command(capsys: Any, *arguments: str) -> str:
    """What the command prints, or is told."""
    main(arguments)
    found = capsys.readouterr()
    return found.out + found.err


def planned(capsys: Any, plan: str) -> Any:
    """Whether the command says what a plan does; else what it is told."""
    said = command(capsys, "plan", "--steps", "9", plan)
    return said if said.startswith("retape:") else "steps" in said


HUGE = [2**62] * 3
LARGE = {"forward": [1.0] * 3, "states": HUGE, "tapes": HUGE, "budget": 2**64}
ROWS = [
    *rows(
        "8 * 1.5**7",
        r"""
plan = retape.fixed_time(sweeps=2)
adjoint(plan=plan, steps=None, done=late)
says: Use `fixed_space(snapshots=...)`
plan = retape.fixed_space(snapshots=3)
adjoint(plan=plan, steps=None, done=late)

adjoint(plan=retape.chain(forward=[1], states=[1], tapes=[1], budget=9))
says: Pass `forward`
plan = retape.chain(
  forward=[1] * 3, states=[1] * 3, tapes=[1] * 3, budget=9)
adjoint(plan=plan)

adjoint(plan=retape.fixed_time(sweeps=1, stage=1, split='bisection'))
says: Pass `stage={}`
adjoint(plan=retape.fixed_time(sweeps=1, THE_CODE, split='bisection'))

retape.tiers(levels=3)
says: pass the tiers, the nearest first, as in `levels=(retape.Tier("device", 3),
    retape.Tier("host", 20))`
plan = retape.tiers(levels=(retape.Tier("device", 3), retape.Tier("host", 20)))
adjoint(plan=plan, store=retape.MemoryStore())

tiers = [retape.Tier(name, 2) for name in ('near', 'far', 'farther')]
adjoint(plan=retape.tiers(levels=tiers), steps=None, done=late)
says: Use `retape.tiers(memory=..., disk=...)`
adjoint(plan=retape.tiers(memory=1, disk=2), steps=None, done=late,
  store=retape.TieredStore(retape.MemoryStore(), retape.DiskStore(tmp_path)))

scanned(X, plan=retape.tiers(memory=1, disk=2))
says: Pass another plan, such as `retape.fixed_space(snapshots=20)`
plan = retape.fixed_space(snapshots=20)
jax.grad(lambda x: scanned(x, plan=plan))(X)
gives: jax.grad(looped)(X)

both = {'state', 'tape'}
vlad(LOOP, plan=retape.fixed_space(snapshots=3, store=both))
says: Pass the plan with `store={'state'}`
vlad(LOOP, plan=retape.fixed_space(snapshots=3, store={'state'}))
gives: vlad(LOOP)

scanned(X, plan=retape.within('1 MB'), offload='host')
says: Pass a number of snapshots, such as `retape.fixed_space(snapshots=20,
    offload='host')`
jax.grad(lambda x: scanned(x, plan=retape.fixed_space(snapshots=20, offload='host')))(X)
gives: jax.grad(looped)(X)

retape.Plan(memory=10**6, stage=2)
says: Pass a number of snapshots, such as `fixed_space(snapshots=20, stage=2)`
from retape import fixed_space
adjoint(plan=fixed_space(snapshots=20, stage=2))

retape.tiers(memory=1, disk=2).resolve(30)
says: Pass another plan here, such as `fixed_space(snapshots=20)`
from retape import fixed_space
fixed_space(snapshots=20).resolve(30).d
gives: 20

retape.tiers(memory='1 MB', disk=2).schedule(9)
says: Pass them, or a number of snapshots, such as `memory=20`
adjoint(plan=retape.tiers(memory=20, disk=2), store=retape.MemoryStore())
says: `capsule_bytes` and `tape_bytes` were not given. Pass them  as: tape_bytes=
plan = retape.tiers(memory='1 MB', disk=2)
adjoint(plan=list(plan.schedule(3, capsule_bytes=10, tape_bytes=10)))

retape.tiers(memory=1, disk=2, costs=3)
says: pass `retape.StepCosts(...)`
costs = retape.StepCosts(forward=2.0)
adjoint(plan=retape.tiers(memory=1, disk=2, costs=costs), store=retape.MemoryStore())

retape.tiers(disk=2)
PlanError says: Pass `memory`
adjoint(plan=retape.tiers(memory=1, disk=2), store=retape.MemoryStore())
says: or the tiers as `levels=(retape.Tier(...), ...)`
plan = retape.tiers(levels=(retape.Tier('near', 1), retape.Tier('far', 2)))
adjoint(plan=plan, store=retape.MemoryStore())

retape.tiers(memory=1, levels=(retape.Tier("device", 3), retape.Tier("host", 20)))
says: pass a `retape.Tier('memory', ...)`
plan = retape.tiers(levels=(retape.Tier('memory', 1), retape.Tier('far', 2)))
adjoint(plan=plan, store=retape.MemoryStore())

retape.within('1 MB').resolve(30)
says: Pass them, or a plan that counts snapshots, such as `fixed_space(snapshots=20)`
from retape import fixed_space
fixed_space(snapshots=20).resolve(30).d
gives: 20

adjoint(plan=retape.chain(**LARGE))
says: Pass `units`
adjoint(plan=retape.chain(**LARGE, units=100))

retape.tiers(levels=(3, 4))
PlanError says: Pass `retape.Tier(name, snapshots)`
name, snapshots = 'near', 3
plan = retape.tiers(levels=(retape.Tier(name, snapshots),))
adjoint(plan=plan, store=retape.MemoryStore())

Schedule(3.0, 3)
says: Pass an `int`
adjoint(plan=Schedule(int(3.0), 3))
""",
    ),
    *rows(
        "True",
        r"""
planned(capsys, 'oak')
says: Write the call of one of  as: fixed_space(snapshots=20)
planned(capsys, 'fixed_space(snapshots=20)')

command(capsys, 'plot', '--steps', '300000', 'fixed_space(snapshots=9)')
slow says: Pass fewer `--steps`
command(capsys, 'plot', '--steps', '9', 'fixed_space(snapshots=3)') != ''
slow says: or a plan with a longer `stage`
command(capsys, 'plot', '--steps', '300000', 'segments(stage=30000)') != ''

program(tmp_path)
command(capsys, 'show', f'{tmp_path}/p.py:f', '3')
slow says: Write `3.0`
program(tmp_path)
'while' in command(capsys, 'show', f'{tmp_path}/p.py:f', '3.0')
""",
    ),
]


def late(x: Any) -> bool:
    """After three squarings of 1.5."""
    return x > 20


def program(folder: Any) -> None:
    """Files with a function of JAX and a program of VLAD."""
    text = (
        "import jax.numpy as jnp\nfrom jax import lax\n"
        "def f(x):\n"
        "    return lax.while_loop(lambda v: v < 9, lambda v: v * 2 + jnp.sin(v), x)\n"
    )
    (folder / "p.py").write_text(text, encoding="utf-8")
    (folder / "p.vlad").write_text("(* 3 3)", encoding="utf-8")
