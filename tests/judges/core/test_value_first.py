"""The value first, gradients later: the same bits and the same work as in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import retape
from retape.storage import CodecStore
from tests.judges.core.programs import PROGRAMS, by_hand
from tests.programs import run_program

STEPS = 40
PLANS: dict[str, Any] = {
    "space": retape.fixed_space(snapshots=4),
    "stages": retape.fixed_space(snapshots=3, stage=7),
    "tapes": retape.fixed_space(snapshots=5, store={"state", "tape"}),
    "within": retape.within("2 kB"),
    "one stage": retape.fixed_space(snapshots=1, stage=STEPS),
}
STORES: dict[str, Any] = {
    "none": lambda: None,
    "memory": retape.MemoryStore,
    "codec": lambda: CodecStore(retape.MemoryStore()),
}


def begun(program: Any, plan: Any, store: Any = None, steps: int = STEPS) -> Any:
    options = dict(program.options)
    options.pop("seed", None)
    return run_program(
        program.step,
        program.reverse_step,
        program.x0,
        steps=steps,
        plan=plan,
        store=store,
        **options,
        call=retape.forward,
    )


def at_once(program: Any, plan: Any, steps: int = STEPS, **other: Any) -> Any:
    return run_program(
        program.step,
        program.reverse_step,
        program.x0,
        steps=steps,
        plan=plan,
        **program.options | other,
    )


@pytest.mark.parametrize(
    ("make", "plan", "store"),
    [
        (make, plan, list(STORES)[(i + j) % 3])
        for i, make in enumerate(PROGRAMS)
        for j, plan in enumerate(PLANS)
    ],
)
def test_in_two_parts_as_in_one(make, plan, store):
    program = make()
    run = begun(program, PLANS[plan], STORES[store]())
    value, cost = program.array(run.value).tobytes(), run.cost
    begun(program, PLANS[plan]).close()  # What it does to buffers is nobody's matter.
    found = run.gradient(program.options.get("seed"))
    alone = at_once(make(), PLANS[plan])
    state, _, g = by_hand(program, STEPS)
    assert value == program.array(found.state).tobytes() == state.tobytes()
    assert np.allclose(program.array(found.cotangent), g, rtol=1e-13)
    same = program.array(found.cotangent), program.array(alone.cotangent)
    assert same[0].tobytes() == same[1].tobytes()
    assert cost == found.cost == alone.cost
    assert run.length == STEPS
    assert found.report.advances == alone.report.advances
    assert found.report.taped == alone.report.taped == STEPS


def times(seed: Any, factor: float) -> Any:
    def made(x: Any) -> Any:
        found = seed(x)
        if isinstance(found, dict):
            return {name: factor * part for name, part in found.items()}
        return factor * found

    return made


@pytest.mark.parametrize("make", [p for p in PROGRAMS if "cost" not in p.__name__])
@pytest.mark.parametrize("plan", PLANS)
def test_several_objectives_of_one_run(make, plan):
    program = make()
    seed = program.options["seed"]
    seeds = [times(seed, factor) for factor in (1.0, 2.0, -3.0)]
    several = begun(program, PLANS[plan]).gradients(iter(seeds))
    for found, one in zip(several, seeds, strict=True):
        alone = at_once(make(), PLANS[plan], seed=one)
        same = program.array(found.cotangent), program.array(alone.cotangent)
        assert same[0].tobytes() == same[1].tobytes()
        assert found.report.advances == alone.report.advances


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_short_runs_and_runs_that_tell_their_end(steps):
    ends = [{"steps": steps}, {"done": lambda x: x[1] >= steps}]
    for how in ends:
        run = run_program(
            lambda x, k: [x[0] * 1.5, x[1] + 1],
            lambda x, k, g: [1.5 * g[0], 0],
            [2.0, 0],
            **how,
            call=retape.forward,
        )
        assert run.value == [2.0 * 1.5**steps, steps]
        assert run.gradient(lambda x: [1.0, 0]).cotangent == [1.5**steps, 0]


def test_what_ends_with_it(tmp_path):
    program, store = PROGRAMS[0](), retape.MemoryStore()
    run = begun(program, PLANS["space"], store)
    with pytest.raises(retape.StoreError, match="Give each run a store of its own"):
        begun(program, PLANS["space"], store)
    assert store.nbytes > 0
    del run  # A point that a line search has passed by.
    assert store.nbytes == 0
    run = begun(program, PLANS["space"], store)
    run.close()
    with pytest.raises(retape.PlanError, match="gone"):
        run.gradient(np.copy)


def twice(run: Any) -> None:
    run.gradient(np.copy)
    run.gradient(np.copy)


REFUSALS: list[tuple[Any, Any, Any, type[Exception], str]] = [
    ("space", None, twice, retape.PlanError, "Pass several seeds to `gradients`"),
    ("space", None, lambda run: run.gradient(), retape.PlanError, "Pass `seed`"),
    ("space", None, lambda run: run.gradients([]), retape.PlanError, "`seeds="),
    ("space", None, lambda run: run.gradients(iter([])), retape.PlanError, "`seeds="),
    ("space", None, lambda run: run.gradients(np.copy), retape.PlanError, "`seeds="),
    ("space", None, lambda run: run.gradients([3]), retape.PlanError, "`seeds="),
    ("space", None, lambda run: run.gradient(3), retape.PlanError, "is not a function"),
    ("space", 7, None, retape.StoreError, "is not a store"),
    ("within", None, None, retape.PlanError, "is not a plan"),
]


@pytest.mark.parametrize(("plan", "store", "does", "kind", "said"), REFUSALS)
def test_what_is_refused(plan, store, does, kind, said):
    with pytest.raises(kind, match=said):
        does(begun(PROGRAMS[0](), PLANS[plan] if does or store else plan, store))


LEVELS = (
    retape.Tier("device", 1),
    retape.Tier("host", 1, 1, 1),
    retape.Tier("remote", 2, 3, 3),
)


@pytest.mark.parametrize("both", ["adjoint", "forward"])
@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (retape.tiers(memory=2, disk=2), "snapshots of disk stay in memory"),
        (retape.tiers(levels=LEVELS), "host, remote stay in memory"),
        (retape.within("6 kB"), "times that of step 0"),
    ],
    ids=["tiers without stores", "levels without stores", "a state that grows"],
)
def test_a_plan_that_is_not_kept_is_told_of_in_both(both, plan, told):
    def step(x, k):
        return np.tile(x, 2) if k < 3 else x + 0.0

    def back(x, k, g):
        return g.reshape(2, -1).sum(0) if k < 3 else g + 0.0

    options = {"steps": 12, "plan": plan}
    with pytest.warns(retape.RetapeWarning, match=told):
        if both == "adjoint":
            run_program(step, back, np.ones(16), seed=np.ones_like, **options)
        else:
            run = run_program(step, back, np.ones(16), **options, call=retape.forward)
            run.gradient(np.ones_like)


def test_what_would_be_lost_is_not_ended_early_on_either_way():
    run = begun(PROGRAMS[0](), PLANS["space"])
    with retape.interruptible(signals=()):
        with pytest.raises(retape.PlanError, match="call it outside the block"):
            begun(PROGRAMS[0](), PLANS["space"])
        with pytest.raises(retape.PlanError, match="call it outside the block"):
            run.gradient(np.ones_like)


def test_a_step_that_cannot_be_repeated_is_found_on_the_way_back():
    source = np.random.default_rng(0)
    moody = retape.Program(
        lambda x, k: x + source.normal(), lambda x, k, g: g, verify="full"
    )
    run = retape.forward(moody, 1.0, steps=STEPS, plan=PLANS["space"])
    with pytest.raises(retape.DeterminismError, match="gave another state"):
        run.gradient(lambda x: 1.0)
