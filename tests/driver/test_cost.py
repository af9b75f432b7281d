"""Cost terms along the run, states observed, many steps at a call."""

import os

import numpy as np
import pytest

import retape
from retape import MachineError, PlanError
from tests.programs import run_program

N, STEPS = 3, 23

PLANS = [
    retape.fixed_space(snapshots=3, stage=1),
    retape.fixed_space(snapshots=2, stage=4),
    retape.segments(),
    retape.fixed_space(snapshots=4, store={"state", "tape"}),
    retape.tiers(memory=1, disk=2, stage=2),
    retape.tiers(
        levels=(
            retape.Tier("device", 1),
            retape.Tier("host", 1, 1, 1),
            retape.Tier("disk", 2, 3, 3),
        ),
        stage=2,
    ),
]


def start():
    return np.linspace(0.2, 1.4, N)


def step(x, k):
    x += 0.1 * np.sin(x) + 0.001 * k
    return x


def reverse_step(x, k, g):
    return g * (1 + 0.1 * np.cos(x))


def cost(x, k):
    return float((x**2).sum()) * (1 + 0.1 * k)


def cost_gradient(x, k):
    return 2 * x * (1 + 0.1 * k)


def objective(x, steps=STEPS):
    """The sum of the costs, with no library."""
    x, total = x.copy(), 0.0
    for k in range(steps):
        total += cost(x, k)
        x = x + 0.1 * np.sin(x) + 0.001 * k
    return total + cost(x, steps)


def differences(x, steps=STEPS, h=1e-6):
    made = [
        objective(x + h * e, steps) - objective(x - h * e, steps) for e in np.eye(N)
    ]
    return np.array(made) / (2 * h)


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def call(**options):
    options = {"store": retape.MemoryStore(), **options}
    options = {"steps": STEPS, "cost": cost, "cost_gradient": cost_gradient, **options}
    return run_program(step, reverse_step, start(), **options)


@pytest.mark.parametrize("plan", PLANS, ids=repr)
@pytest.mark.parametrize("on_disk", [False, True])
def test_the_sum_of_costs_and_its_gradient(plan, on_disk, tmp_path):
    store = retape.DiskStore(tmp_path) if on_disk else retape.MemoryStore()
    result = call(plan=plan, store=store)
    assert np.isclose(result.cost, objective(start()), rtol=1e-14)
    assert np.allclose(result.cotangent, differences(start()), rtol=1e-7)


def test_costs_add_to_the_seed_and_go_with_tapes_and_any_end():
    plain = run_program(
        step, reverse_step, start(), seed=lambda x: x, steps=STEPS
    ).cotangent
    alone = call().cotangent
    both = call(seed=lambda x: x)
    assert np.allclose(both.cotangent, plain + alone, rtol=1e-13)
    last = both.state

    def tape(x, k):
        slope = 1 + 0.1 * np.cos(x)
        return step(x, k), slope

    taped = run_program(
        step,
        lambda slope, k, g: slope * g,
        start(),
        tape=tape,
        cost=cost,
        cost_gradient=cost_gradient,
        done=lambda x: bool(x[0] >= last[0]),
        plan=retape.fixed_space(snapshots=2, stage=3),
    )
    assert np.allclose(taped.cotangent, alone, rtol=1e-13)
    assert taped.cost == both.cost and taped.report.length == STEPS
    nothing = call(steps=0)
    assert nothing.cost == cost(start(), 0)
    assert (nothing.cotangent == cost_gradient(start(), 0)).all()


def test_a_cost_gradient_may_be_the_state_and_the_adjoint_spoil_it():
    def spoils(x, k, g):
        x[:] = 1 + 0.1 * np.cos(x)
        x *= g
        return x

    result = run_program(
        step,
        spoils,
        start(),
        cost=lambda x, k: 0.5 * float((x**2).sum()),
        cost_gradient=lambda x, k: x,
        steps=STEPS,
        plan=PLANS[1],
    )

    def value(x):
        total = 0.5 * (x**2).sum()
        for k in range(STEPS):
            x = x + 0.1 * np.sin(x) + 0.001 * k
            total += 0.5 * (x**2).sum()
        return total

    h = 1e-6
    slopes = [
        (value(start() + h * e) - value(start() - h * e)) / (2 * h) for e in np.eye(N)
    ]
    assert np.allclose(result.cotangent, slopes, rtol=1e-7)


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_each_state_is_observed_once_and_in_order(plan):
    seen = []
    call(plan=plan, observe=lambda x, k: seen.append((k, x)))
    assert [k for k, _ in seen] == list(range(STEPS + 1))
    x = start()
    for k, state in seen:
        assert state.tobytes() == x.tobytes()
        x = x + (0.1 * np.sin(x) + 0.001 * k)


def test_states_since_the_last_snapshot_are_observed_again_by_the_next_process(
    tmp_path,
):
    for dies in (5, 20, 26, 40):
        seen, calls = [], 0

        def see(x, k, seen=seen):
            seen.append(k)

        def mortal(x, k, dies=dies):
            nonlocal calls
            calls += 1
            if calls == dies:
                raise KeyError
            return step(x, k)

        def resumed(run, dies=dies, see=see):
            return run_program(
                run,
                reverse_step,
                start(),
                cost=cost,
                cost_gradient=cost_gradient,
                observe=see,
                steps=STEPS,
                plan=retape.fixed_space(snapshots=4, stage=1),
                store=retape.DiskStore(tmp_path / str(dies), every=0),
                key=1,
            )

        with pytest.raises(KeyError):
            resumed(mortal)
        before = list(seen)
        seen.clear()
        result = resumed(step)
        assert result.report.resumed
        assert np.isclose(result.cost, objective(start()), rtol=1e-14)
        assert np.allclose(result.cotangent, differences(start()), rtol=1e-7)
        if before[-1] == STEPS:
            assert seen == []
        else:
            assert seen == list(range(seen[0], STEPS + 1))
            assert seen[0] <= before[-1] + 1


def many(x, k0, k1):
    for k in range(k0, k1):
        x = step(x, k)
    return x


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_many_steps_at_a_call_give_the_same_bits(plan):
    calls = []

    def forward(x, k0, k1):
        calls.append((k0, k1))
        return many(x, k0, k1)

    one = run_program(
        step,
        reverse_step,
        start(),
        seed=np.copy,
        steps=STEPS,
        plan=plan,
        store=retape.MemoryStore(),
    )
    for single in (None, step):
        other = run_program(
            single,
            reverse_step,
            start(),
            many=forward,
            seed=np.copy,
            steps=STEPS,
            plan=plan,
            store=retape.MemoryStore(),
        )
        assert other.cotangent.tobytes() == one.cotangent.tobytes()
        assert other.report == one.report
    if one.report.longest_stage < STEPS:
        assert max(k1 - k0 for k0, k1 in calls) > 1
    # With a cost each state has to be seen, and with a predicate each is asked about.
    watched = call(plan=plan, seed=np.copy)
    again = run_program(
        None,
        reverse_step,
        start(),
        many=forward,
        cost=cost,
        cost_gradient=cost_gradient,
        seed=np.copy,
        steps=STEPS,
        plan=plan,
        store=retape.MemoryStore(),
    )
    assert again.cost == watched.cost
    assert again.cotangent.tobytes() == watched.cotangent.tobytes()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cost": cost}, "`cost=<function cost .* pass both or neither"),
        ({"cost_gradient": cost_gradient}, "pass both or neither"),
        ({"observe": 7}, "`observe=7` is not a function"),
        ({"many": "f"}, "`many='f'` is not a function"),
        ({"step": None}, "`step=None` is not a function"),
    ],
)
def test_functions_that_do_not_go_together_are_named(options, text):
    options = {
        "step": step,
        "reverse_step": reverse_step,
        "x0": start(),
        "seed": np.copy,
        "steps": 3,
        **options,
    }
    with pytest.raises(PlanError, match=text):
        run_program(**options)


def test_functions_that_return_nothing_or_another_shape_are_named():
    def nothing(*_):
        return None

    with pytest.raises(MachineError, match="`many` returned `None` for step 0. Ret"):
        run_program(
            step,
            reverse_step,
            start(),
            many=nothing,
            seed=np.copy,
            steps=9,
            plan=PLANS[0],
        )
    with pytest.raises(MachineError, match="`seed` returned `None` for the last stat"):
        run_program(step, reverse_step, start(), seed=nothing, steps=3)
    with pytest.raises(MachineError, match="same form as `seed` and `reverse_step`"):
        run_program(
            step,
            lambda x, k, g: (g[0],),
            start(),
            cost=cost,
            cost_gradient=lambda x, k: [x],
            seed=lambda x: (x,),
            steps=3,
        )
