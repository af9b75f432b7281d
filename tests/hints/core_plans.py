"""Hints on plans and schedules, in Python and on the command line."""

# ruff: noqa: F401 - the statements of the rows use what is imported

from typing import Any

import numpy as np

import retape
from retape.cli import main
from retape.schedule import Chain, Schedule
from tests.hints.core_runs import VALUE, adjoint
from tests.hints.jax_gradients import X, jax, looped, scanned
from tests.hints.rows import Row
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


TIERS = 'levels=(retape.Tier("device", 3), retape.Tier("host", 20))'
TO_HOST = "retape.fixed_space(snapshots=20, offload='host')"
IN_MEMORY = "store=retape.MemoryStore()"
CHAIN = "forward=[1.0] * 3, states=[2**62] * 3, tapes=[2**62] * 3, budget=2**64"
ROWS = [
    Row(
        "Use `fixed_space(snapshots=...)`",
        "plan = retape.fixed_time(sweeps=2)\nadjoint(plan=plan, steps=None, done=late)",
        "plan = retape.fixed_space(snapshots=3)\n"
        "adjoint(plan=plan, steps=None, done=late)",
        VALUE,
    ),
    Row(
        "Pass `forward`",
        "adjoint(plan=retape.chain(forward=[1], states=[1], tapes=[1], budget=9))",
        "plan = retape.chain(\n"
        "  forward=[1] * 3, states=[1] * 3, tapes=[1] * 3, budget=9)\n"
        "adjoint(plan=plan)",
        VALUE,
    ),
    Row(
        "Pass `stage={}`",
        "adjoint(plan=retape.fixed_time(sweeps=1, stage=1, split='bisection'))",
        "adjoint(plan=retape.fixed_time(sweeps=1, THE_CODE, split='bisection'))",
        VALUE,
    ),
    Row(
        f"pass the tiers, the nearest first, as in `{TIERS}`",
        "retape.tiers(levels=3)",
        f"adjoint(plan=retape.tiers({TIERS}), {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "Use `retape.tiers(memory=..., disk=...)`",
        "tiers = [retape.Tier(name, 2) for name in ('near', 'far', 'farther')]\n"
        "adjoint(plan=retape.tiers(levels=tiers), steps=None, done=late)",
        "adjoint(plan=retape.tiers(memory=1, disk=2), steps=None, done=late,\n"
        "  store=retape.TieredStore(retape.MemoryStore(), retape.DiskStore(tmp_path)))",
        VALUE,
    ),
    Row(
        "Pass another plan, such as `retape.fixed_space(snapshots=20)`",
        "scanned(X, plan=retape.tiers(memory=1, disk=2))",
        "plan = retape.fixed_space(snapshots=20)\n"
        "jax.grad(lambda x: scanned(x, plan=plan))(X)",
        "jax.grad(looped)(X)",
    ),
    Row(
        "Pass the plan with `store={'state'}`",
        "both = {'state', 'tape'}\n"
        "vlad(LOOP, plan=retape.fixed_space(snapshots=3, store=both))",
        "vlad(LOOP, plan=retape.fixed_space(snapshots=3, store={'state'}))",
        "vlad(LOOP)",
    ),
    Row(
        f"Pass a number of snapshots, such as `{TO_HOST}`",
        "scanned(X, plan=retape.within('1 MB'), offload='host')",
        f"jax.grad(lambda x: scanned(x, plan={TO_HOST}))(X)",
        "jax.grad(looped)(X)",
    ),
    Row(
        "Pass a number of snapshots, such as `fixed_space(snapshots=20, stage=2)`",
        "retape.Plan(memory=10**6, stage=2)",
        "from retape import fixed_space\n"
        "adjoint(plan=fixed_space(snapshots=20, stage=2))",
        VALUE,
    ),
    Row(
        "Write `name=value`",
        "planned(capsys, 'tiers:3')",
        "planned(capsys, 'tiers:memory=1,disk=3')",
        written="memory=1,disk=3",
    ),
    Row(
        "Write `name=value`",
        "planned(capsys, 'fixed_space:colour=3')",
        "planned(capsys, 'fixed_space:snapshots=3')",
        written="snapshots=3",
    ),
    Row(
        "Write `{}:{}`",
        "planned(capsys, 'fixed_space')",
        "planned(capsys, 'fixed_space:snapshots=3')",
        written="fixed_space:snapshots=3",
    ),
    Row(
        "Pass another plan here, such as `fixed_space(snapshots=20)`",
        "retape.tiers(memory=1, disk=2).resolve(30)",
        "from retape import fixed_space\nfixed_space(snapshots=20).resolve(30).d",
        "20",
    ),
    Row(
        "Pass them, or a number of snapshots, such as `memory=20`",
        "retape.tiers(memory='1 MB', disk=2).schedule(9)",
        f"adjoint(plan=retape.tiers(memory=20, disk=2), {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "`capsule_bytes` and `tape_bytes` were not given. Pass them",
        "retape.tiers(memory='1 MB', disk=2).schedule(9)",
        "plan = retape.tiers(memory='1 MB', disk=2)\n"
        "adjoint(plan=list(plan.schedule(3, capsule_bytes=10, tape_bytes=10)))",
        VALUE,
        written="tape_bytes=",
    ),
    Row(
        "pass `retape.StepCosts(...)`",
        "retape.tiers(memory=1, disk=2, costs=3)",
        "costs = retape.StepCosts(forward=2.0)\n"
        f"adjoint(plan=retape.tiers(memory=1, disk=2, costs=costs), {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "Pass `memory`",
        "retape.tiers(disk=2)",
        f"adjoint(plan=retape.tiers(memory=1, disk=2), {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "or the tiers as `levels=(retape.Tier(...), ...)`",
        "retape.tiers(disk=2)",
        "plan = retape.tiers(levels=(retape.Tier('near', 1), retape.Tier('far', 2)))\n"
        f"adjoint(plan=plan, {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "pass a `retape.Tier('memory', ...)`",
        f"retape.tiers(memory=1, {TIERS})",
        "plan = retape.tiers(levels=(retape.Tier('memory', 1), retape.Tier('far', 2)))"
        f"\nadjoint(plan=plan, {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "Pass them, or a plan that counts snapshots, such as "
        "`fixed_space(snapshots=20)`",
        "retape.within('1 MB').resolve(30)",
        "from retape import fixed_space\nfixed_space(snapshots=20).resolve(30).d",
        "20",
    ),
    Row(
        "Pass `units`",
        f"adjoint(plan=retape.chain({CHAIN}))",
        f"adjoint(plan=retape.chain({CHAIN}, units=100))",
        VALUE,
    ),
    Row(
        "Pass `retape.Tier(name, snapshots)`",
        "retape.tiers(levels=(3, 4))",
        "name, snapshots = 'near', 3\n"
        "plan = retape.tiers(levels=(retape.Tier(name, snapshots),))\n"
        f"adjoint(plan=plan, {IN_MEMORY})",
        VALUE,
    ),
    Row(
        "pass an `int`",
        "Schedule(3.0, 3)",
        "adjoint(plan=Schedule(int(3.0), 3))",
        VALUE,
    ),
    Row(
        "Pass fewer `--steps`",
        "command(capsys, 'plot', '--steps', '300000', 'fixed-space:9')",
        "command(capsys, 'plot', '--steps', '9', 'fixed-space:3') != ''",
        slow=True,
    ),
    Row(
        "or a plan with a longer `stage`",
        "command(capsys, 'plot', '--steps', '300000', 'fixed-space:9')",
        "command(capsys, 'plot', '--steps', '300000', 'fixed-space:9,stage=30000')"
        " != ''",
        slow=True,
    ),
    Row(
        "Write `3.0`",
        "program(tmp_path)\ncommand(capsys, 'show', f'{tmp_path}/p.py:f', '3')",
        "program(tmp_path)\n"
        "'while' in command(capsys, 'show', f'{tmp_path}/p.py:f', '3.0')",
        slow=True,
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
