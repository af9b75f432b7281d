"""Multistage steps: the driver goes on from the stages of a step that is kept."""

import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, PlanError
from retape.schedule import Multistage, Restore


def stages(x, k):
    """Two stages of an implicit scheme's kind: the last is the state after the step."""
    inner = x + 0.05 * np.sin(1.7 * x)
    return inner, inner + 0.05 * np.cos(inner + k)


def step(x, k):
    return stages(x, k)[1]


def tape(x, k):
    inner, after = stages(x, k)
    return after, (x, inner, after)


def reverse_step(kept, k, g):
    x, inner, after = kept
    g = g * (1 - 0.05 * np.sin(inner + k))
    return g * (1 + 0.085 * np.cos(1.7 * x)) + 0.0 * after


def restart(kept, k):
    """The last stage itself; what is kept of the others is written over."""
    kept[0][...] = kept[1][...] = np.nan
    return kept[2]


def in_place(x, k):
    x[...] = step(x, k)
    return x


def run(plan, n, store=None, **more):
    return retape.adjoint(
        in_place,
        reverse_step,
        np.linspace(0.3, 1.1, 5),
        seed=np.ones_like,
        steps=n,
        tape=tape,
        plan=plan,
        store=store,
        key="a test",
        **more,
    )


@pytest.mark.parametrize("case", [(10, 3, 2), (30, 4, 2), (30, 8, 3), (61, 20, 2)])
@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("summed", [False, True])
def test_the_gradient_is_that_of_other_plans(case, kind, summed, tmp_path):
    more = {}
    if summed:
        more = {"cost": lambda x, k: float(x[0]), "cost_gradient": _first}
    schedule = Multistage(*case, stiffly_accurate=True)
    # What is tested: states that are restored where a tape lies.
    assert any(isinstance(action, Restore) for action in schedule)
    store = MemoryStore() if kind == "memory" else DiskStore(tmp_path)
    found = run(schedule, case[0], store, restart=restart, **more)
    other = run(retape.fixed_space(snapshots=3), case[0], **more)
    np.testing.assert_array_equal(found.cotangent, other.cotangent)
    assert found.cost == other.cost
    assert found.report.advances == schedule.counts().advances


def _first(x, k):
    g = np.zeros_like(x)
    g[0] = 1.0
    return g


def test_a_run_that_is_killed_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    left = [0]

    def failing(x, k):
        left[0] -= 1
        if left[0] < 0:
            raise KeyError
        return tape(x, k)

    schedule, found, crashes = Multistage(40, 6, 2, True), None, 0
    while found is None:
        left[0] = 17
        try:
            found = retape.adjoint(
                in_place,
                reverse_step,
                np.linspace(0.3, 1.1, 5),
                seed=np.ones_like,
                steps=40,
                tape=failing,
                restart=restart,
                plan=schedule,
                store=DiskStore(tmp_path, every=0),
                key="a test",
            )
        except KeyError:
            crashes += 1
            assert crashes < 40
    other = run(retape.fixed_space(snapshots=3), 40)
    np.testing.assert_array_equal(found.cotangent, other.cotangent)


def test_what_cannot_be_is_refused_before_the_first_step():
    stiff = Multistage(10, 3, 2, stiffly_accurate=True)
    with pytest.raises(PlanError, match=r"Pass `restart=` to .*stiffly_accurate=False"):
        run(stiff, 10)
    with pytest.raises(PlanError, match="cannot tell the state after a step"):
        run(list(stiff), 10)
    with pytest.raises(PlanError, match="`measure=True` compares memory"):
        run(stiff, 10, restart=restart, measure=True)
    with pytest.raises(PlanError, match="without `tape`: it is given what"):
        retape.adjoint(
            step, reverse_step, 1.0, seed=abs, steps=3, restart=lambda kept, k: kept
        )
