"""How often `retape.adjoint` calls functions, what it holds, and what it looks at."""

import weakref

import numpy as np
import pytest

import retape
from tests.programs import run_program

MATRIX = np.random.default_rng(1).normal(size=(4, 4)) * 0.6


def step(x, k):
    return np.tanh(MATRIX @ x + 0.01 * k)


def reverse_step(x, k, g):
    return MATRIX.T @ (g * (1 - step(x, k) ** 2))


def call(step=step, reverse_step=reverse_step, x0=None, **options):
    """A run of the program above, but for what is said."""
    options = {"seed": np.ones_like} | options
    return run_program(step, reverse_step, np.ones(4) if x0 is None else x0, **options)


def plainly(n):
    states = [np.ones(4)]
    for k in range(n):
        states.append(step(states[-1], k))
    g = np.ones(4)
    for k in reversed(range(n)):
        g = reverse_step(states[k], k, g)
    return states[-1], g


def taped_step(x, k):
    after = step(x, k)
    return after, {"slope": 1 - after**2}


def reverse_from_tape(tape, k, g):
    return MATRIX.T @ (g * tape["slope"])


@pytest.mark.parametrize(
    ("n", "stage"), [(0, None), (1, 4), (2, None), (37, 1), (37, 4), (120, None)]
)
@pytest.mark.parametrize("on_disk", [False, True])
def test_each_step_is_taped_once_where_tapes_are_in_slots(n, stage, on_disk, tmp_path):
    plan = retape.fixed_space(snapshots=4, stage=stage, store={"state", "tape"})
    calls = []

    def counted(x, k):
        calls.append(k)
        return taped_step(x, k)

    result = call(
        step,
        reverse_from_tape,
        tape=counted,
        steps=n,
        plan=plan,
        store=retape.DiskStore(tmp_path) if on_disk else None,
    )
    state, cotangent = plainly(n)
    assert result.state.tobytes() == state.tobytes()
    assert result.cotangent.tobytes() == cotangent.tobytes()
    counts = plan.predict(n, 32, 32).counts
    assert result.report.kept_tapes == counts.kept_tapes
    assert result.report.advances == counts.advances
    # The first is taped once more for the bytes of its tape; a run on disk keeps what
    # the adjoint of the last step was given, too.
    assert len(calls) == n + (n > 0) * (2 if on_disk else 1)


def test_the_last_step_of_a_stage_is_not_run_to_be_taped():
    runs = []
    report = call(
        lambda x, k: runs.append(k) or step(x, k),
        steps=60,
        plan=retape.fixed_space(snapshots=3, stage=6),
    ).report
    # `reverse_step` has the state before each step; only the run's end is computed.
    assert len(runs) == report.advances + 60 - (report.reverses - 1)


class Census:
    """Counts the states that are alive: those that copies and steps have made."""

    def __init__(self, monkeypatch):
        self.live = self.peak = 0
        monkeypatch.setattr("retape.driver._step_machine.copy_tree", self.copy)

    def copy(self, x):
        return self.born(x + 0.0) if isinstance(x, np.ndarray) else x

    def step(self, x, k=0):
        return self.born(x + 1.0)

    def born(self, made):
        self.live += 1
        self.peak = max(self.peak, self.live)
        weakref.finalize(made, self.gone)
        return made

    def gone(self):
        self.live -= 1


@pytest.mark.parametrize("alpha", [1, 2, 9])
@pytest.mark.parametrize("d", [1, 6])
@pytest.mark.parametrize("on_disk", [False, True])
def test_no_more_states_are_alive_than_is_said(
    monkeypatch, tmp_path, d, alpha, on_disk
):
    for known in (True, False):
        census = Census(monkeypatch)
        end = {"steps": 100} if known else {"done": lambda x: x[0] >= 100}
        path = tmp_path / str(known)
        result = run_program(
            census.step,
            lambda x, k, g: g,
            np.zeros(4),
            seed=lambda x: 1.0,
            plan=retape.fixed_space(snapshots=d, stage=alpha),
            store=retape.DiskStore(path) if on_disk else None,
            key=1,
            **end,
        )
        assert result.report.length == 100 and result.report.peak_snapshots == d
        # On disk the last state and that of the last reversed step stay, for the proof
        # that goes with a record; with stages of one step they are one.
        assert census.peak == (min(alpha, 2) if on_disk else d) + alpha + 3


def scale(x, k):
    x *= 1.01
    return x


def test_a_random_step_is_found_and_one_in_place_is_none():
    plan = retape.fixed_space(snapshots=2)
    options = {"x0": np.ones(2), "steps": 20, "plan": plan, "verify": "full"}
    right = call(scale, lambda x, k, g: 1.01 * g, **options)
    assert np.allclose(right.cotangent, 1.01**20)
    source = np.random.default_rng(0)
    with pytest.raises(retape.DeterminismError, match="^step 8 gave another state"):
        call(lambda x, k: x + source.normal(), lambda x, k, g: g, **options)


@pytest.mark.parametrize("stage", [6, 30])
def test_a_step_that_is_run_again_only_for_a_tape_is_looked_at(stage):
    """Each step is advanced once at most here: what could differ is on the tapes."""
    source, calls = np.random.default_rng(0), 0

    def moody(x, k):
        nonlocal calls
        calls += 1
        return x + (source.normal() if k == 9 and calls > 30 else 1.0)

    def verified(verify):
        nonlocal calls
        calls = 0
        return call(
            moody,
            lambda x, k, g: g + k,
            x0=np.ones(2),
            steps=60,
            plan=retape.fixed_space(snapshots=20, stage=stage),
            verify=verify,
        )

    assert verified(None).report.advances < 60
    for verify in ("full", "cheap"):
        with pytest.raises(retape.DeterminismError, match="^step 9 gave another state"):
            verified(verify)


def test_a_step_that_changes_its_argument_against_the_hint_is_told():
    start = np.ones(4)
    with pytest.raises(ValueError, match="read-only") as found:
        call(scale, lambda x, k, g: g, x0=start, in_place=False, steps=3)
    assert "Leave `in_place` out if `step` is meant to." in found.value.__notes__[0]
    assert start.tolist() == [1.0] * 4 and start.flags.writeable
