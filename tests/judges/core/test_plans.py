"""Plans times programs through `retape.adjoint`: value, gradient, work, bytes, kills.

The oracle is the gradient by hand, with every state kept (`programs.py`).
"""

import random
import subprocess
import sys
import tracemalloc
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import retape
from retape.storage import AsyncStore
from tests.judges.core.programs import (
    MANY,
    PROGRAMS,
    N,
    by_hand,
    formula,
    many_at_once,
    pure,
    start,
    taped,
    taped_with_costs,
    with_costs,
)
from tests.programs import run_program

STEPS = 23
LEVELS = (retape.Tier("near", 2), retape.Tier("far", 3, 4, 4))
PLANS = {
    "one snapshot": retape.fixed_space(snapshots=1),
    "snapshots": retape.fixed_space(snapshots=3),
    "stages": retape.fixed_space(snapshots=2, stage=4),
    "bisection": retape.fixed_space(snapshots=4, split="bisection"),
    "treeverse": retape.fixed_space(snapshots=4, split="treeverse"),
    "tapes": retape.fixed_space(snapshots=4, store={"state", "tape"}),
    "taped stages": retape.fixed_space(snapshots=3, stage=3, store={"state", "tape"}),
    "once": retape.fixed_time(sweeps=1),
    "twice": retape.fixed_time(sweeps=2, stage=2),
    "logarithmic": retape.logarithmic(),
    "segments": retape.segments(),
    "budget": retape.within("400 B"),
    "two tiers": retape.tiers(memory=1, disk=2, stage=2),
    "levels": retape.tiers(levels=LEVELS, stage=2),
    "bytes": retape.tiers(memory="150 B", disk="1 kB"),
}
UNKNOWN = [
    name
    for name, plan in PLANS.items()
    if name not in ("once", "twice", "segments", "levels", "bytes")
]
STORES = {
    "memory": lambda path: retape.MemoryStore(),
    "disk": lambda path: retape.DiskStore(path, every=0),
    "near": lambda path: retape.TieredStore(
        retape.MemoryStore(capacity=2), retape.DiskStore(path, every=0)
    ),
    "tiered": lambda path: retape.TieredStore(
        retape.MemoryStore(capacity=1), AsyncStore(retape.DiskStore(path, every=0))
    ),
}


def call(
    program, plan, kind, path, *, known=True, steps=STEPS, wrapped=lambda f: f, **more
):
    """One run of a program under a plan, with a store of a kind."""
    last = by_hand(program, steps)[0]
    ends = {"steps": steps} if known else {
        "done": lambda x: bool(np.ravel(program.array(x))[0] >= last[0] - 1e-9)
    }  # fmt: skip
    return run_program(
        program.step and wrapped(program.step),
        wrapped(program.reverse_step),
        program.x0,
        plan=plan,
        store=STORES[kind](path),
        key="a judge",
        **ends,
        **program.options,
        **more,
    )


def check(program, found, steps=STEPS):
    """All by hand, and a start state that nobody has changed."""
    state, cost, cotangent = by_hand(program, steps)
    for got, right in ((found.state, state), (found.cotangent, cotangent)):
        assert np.allclose(np.ravel(program.array(got)), right, rtol=1e-13, atol=0)
    assert np.ravel(program.array(program.x0)).tolist() == start().tolist()
    assert found.report.length == steps
    if "cost" in program.options:
        assert np.isclose(found.cost, cost, rtol=1e-13, atol=0)


def pairs(programs, plans):
    """Each program under every second plan, with the stores in turn."""
    kinds = list(STORES)
    return [
        (program, plan, kinds[(i + j) % len(kinds)])
        for i, program in enumerate(programs)
        for j, plan in enumerate(plans)
        if (i + j) % 2 == 0
    ]


def identity(value):
    return value if isinstance(value, str) else value.__name__


@pytest.mark.parametrize(("make", "plan", "kind"), pairs(PROGRAMS, PLANS), ids=identity)
def test_the_gradient_is_that_by_hand(make, plan, kind, tmp_path):
    program = make()
    found = call(program, PLANS[plan], kind, tmp_path)
    check(program, found)
    assert found.report.taped == STEPS


@pytest.mark.parametrize(
    ("make", "plan", "kind"),
    pairs([p for p in PROGRAMS if p not in MANY], UNKNOWN),
    ids=identity,
)
def test_a_run_whose_end_is_not_known_gives_the_same(make, plan, kind, tmp_path):
    program = make()
    check(program, call(program, PLANS[plan], kind, tmp_path, known=False))


@pytest.mark.parametrize("steps", [0, 1, np.int64(2)])
@pytest.mark.parametrize("plan", PLANS)
def test_short_runs(plan, steps, tmp_path):
    for i, (make, known) in enumerate(product((pure, with_costs), (True, False))):
        if known or plan in UNKNOWN:
            program, path = make(), tmp_path / str(i)
            found = call(program, PLANS[plan], "disk", path, known=known, steps=steps)
            check(program, found, steps)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("make", [pure, with_costs], ids=identity)
def test_each_state_is_observed_once_and_in_order(make, plan, tmp_path):
    seen = []
    call(
        make(),
        PLANS[plan],
        "memory",
        tmp_path,
        known=plan not in UNKNOWN,
        observe=lambda x, k: seen.append((k, x.tobytes())),
    )
    x, states = start(), []
    for k in range(STEPS + 1):
        states.append((k, x.tobytes()))
        x = formula(x, k)
    assert seen == states


@pytest.mark.parametrize("plan", PLANS)
def test_many_steps_at_a_call_give_the_same_bits(plan, tmp_path):
    one = call(pure(), PLANS[plan], "memory", tmp_path)
    for single in (None, formula):
        program, calls = many_at_once(), []
        forward = program.options["many"]

        def counted(x, begin, end, forward=forward, calls=calls):
            calls.append(end - begin)
            return forward(x, begin, end)

        program.step, program.options["many"] = single, counted
        other = call(program, PLANS[plan], "memory", tmp_path)
        assert other.cotangent.tobytes() == one.cotangent.tobytes()
        assert other.report == one.report
        assert max(calls) > 1 or one.report.longest_stage == STEPS


@pytest.mark.parametrize("make", [pure, taped], ids=identity)
@pytest.mark.parametrize("plan", PLANS)
def test_the_work_is_what_was_predicted(plan, make, tmp_path):
    program, stepped, recorded = make(), [], []
    step, tape = program.step, program.options.get("tape")
    program.step = lambda x, k: stepped.append(k) or step(x, k)
    if tape:
        program.options["tape"] = lambda x, k: recorded.append(k) or tape(x, k)
    report = call(program, PLANS[plan], "memory", tmp_path).report
    predicted = PLANS[plan].predict(STEPS, 8 * N, 8 * N)
    for name in ("advances", "taped", "stores", "restores", "reverses", "kept_tapes"):
        assert getattr(report, name) == getattr(predicted, name), name
    assert report.longest_stage == predicted.longest_stage
    assert report.peak_snapshots == predicted.peak_snapshots
    if tape:
        # The first is taped once more for the bytes of its tape.
        assert len(stepped) == report.advances and len(recorded) == STEPS + 1
    elif not report.kept_tapes:
        # `reverse_step` has the state before each step: of a stage's last step only
        # that of the run is computed.
        assert len(stepped) == report.advances + STEPS - (report.reverses - 1)


@pytest.mark.parametrize(
    ("plan", "known"),
    [
        *((plan, True) for plan in PLANS if plan not in ("budget", "bytes")),
        *((plan, False) for plan in ("one snapshot", "snapshots", "stages")),
    ],
)
def test_the_bytes_are_what_was_promised(plan, known):
    """The heap that a run takes: snapshots, the tape, and three states beside them."""
    state = np.zeros(40_000)
    plan, size, steps = PLANS[plan], state.nbytes, 60
    ends = {"steps": steps} if known else {"done": lambda x: x[0] >= steps}
    prediction = plan.predict(steps, size, size)
    tracemalloc.start()
    try:
        run_program(
            lambda x, k: x + 1.0,
            lambda x, k, g: g,
            state,
            seed=lambda x: 1.0,
            plan=plan,
            store=retape.MemoryStore(),
            **ends,
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    held = prediction.peak_snapshots + prediction.alpha
    # One array is 320,000 bytes: a copy more would be seen.
    assert peak < (held + 3) * size + 200_000


DAMAGES = [
    lambda draw, data: data,
    lambda draw, data: b"" if draw.random() < 0.2 else data,
    lambda draw, data: data[: draw.randint(0, 200)] if draw.random() < 0.5 else data,
]
"""What may become of each file before a run is taken up."""


@pytest.mark.parametrize(
    ("plan", "known"),
    [*((plan, True) for plan in PLANS), *((plan, False) for plan in UNKNOWN)],
)
def test_a_run_that_dies_at_any_step_goes_on_with_the_same_bits(plan, known, tmp_path):
    """What is damaged in between is made again from what is whole."""
    draw, damage = random.Random(plan), DAMAGES[(list(PLANS).index(plan) + known) % 3]
    make = draw.choice([p for p in PROGRAMS if p not in MANY])
    kind = draw.choice(["disk", "tiered"])
    whole = call(make(), PLANS[plan], "memory", tmp_path / "whole", known=known)

    class Dies(BaseException):
        pass

    def dying(function):
        def called(*arguments):
            nonlocal left
            left -= 1
            if left < 0:
                raise Dies
            return function(*arguments)

        return called

    deaths = 0
    for _ in range(40):
        # A process that takes a run up makes some steps for the comparison first.
        left, program = draw.randint(12, 30) + deaths, make()
        how = {"known": known, "wrapped": dying}
        try:
            found = call(program, PLANS[plan], kind, tmp_path / "run", **how)
        except Dies:
            deaths += 1
            for file in (tmp_path / "run").glob("*-0*.npz"):
                file.write_bytes(damage(draw, file.read_bytes()))
        else:
            break
    check(program, found)
    got, want = (program.array(each.cotangent) for each in (found, whole))
    assert deaths and got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("plan", "program", "kind", "last"),
    [
        ("stages", "in_place", "disk", 31),
        ("tapes", "taped", "tiered", 25),
        ("levels", "tree", "tiered", 40),
    ],
)
def test_kill_9_loses_nothing_but_time(plan, program, kind, last, tmp_path):
    path = tmp_path / "run"
    place = "tests.judges.core.killed"
    command = [sys.executable, "-m", place, path, plan, program, kind, str(last)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -9
    (make,) = [each for each in PROGRAMS if each.__name__ == program]
    here = make()
    found = call(here, PLANS[plan], kind, path)
    check(here, found)
    whole = call(make(), PLANS[plan], "memory", tmp_path)
    assert found.report.resumed and found.report.taped < STEPS
    got, want = (here.array(each.cotangent) for each in (found, whole))
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("make", [pure, taped_with_costs], ids=identity)
def test_the_gradient_by_hand_is_the_finite_difference(make):
    program = make()

    def value(x):
        total = 0.0
        for k in range(STEPS):
            total += program.each(k) * (x * x).sum()
            x = formula(x, k)
        return total + (program.each(STEPS) + program.last) * (x * x).sum()

    h, x0 = 1e-6, start()
    slopes = [(value(x0 + h * e) - value(x0 - h * e)) / (2 * h) for e in np.identity(N)]
    assert np.allclose(by_hand(program, STEPS)[2], slopes, rtol=1e-7)
