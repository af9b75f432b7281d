"""The front for step functions: NumPy states, trees of them, both kinds of end."""

import weakref

import numpy as np
import pytest

import retape
from retape import MachineError, PlanError
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


@pytest.mark.parametrize("n", [0, 1, 2, 37, 200])
@pytest.mark.parametrize(
    "plan",
    [
        None,
        retape.segments(),
        retape.within("2 kB"),
        retape.logarithmic(split="bisection"),
        retape.fixed_time(sweeps=2),
    ],
    ids=repr,
)
def test_the_bits_are_those_of_storing_everything(n, plan):
    result = call(steps=n, plan=plan)
    state, cotangent = plainly(n)
    assert result.state.tobytes() == state.tobytes()
    assert result.cotangent.tobytes() == cotangent.tobytes()


def taped_step(x, k):
    after = step(x, k)
    return after, {"slope": 1 - after**2}


def reverse_from_tape(tape, k, g):
    return MATRIX.T @ (g * tape["slope"])


@pytest.mark.parametrize("n", [0, 1, 2, 37, 120])
@pytest.mark.parametrize("stage", [None, 1, 4])
@pytest.mark.parametrize("on_disk", [False, True])
def test_tapes_of_the_users_own_in_slots(n, stage, on_disk, tmp_path):
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
    # Each step is taped once, and the first once more for the bytes of its tape; a run
    # on disk keeps what the adjoint of the last step was given, too.
    assert len(calls) == n + (n > 0) * (2 if on_disk else 1)


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (retape.tiers(memory=2, disk=2), "disk"),
        (
            retape.tiers(
                levels=(
                    retape.Tier("device", 1),
                    retape.Tier("host", 1, 1, 1),
                    retape.Tier("remote", 2, 3, 3),
                )
            ),
            "host, remote",
        ),
    ],
)
def test_tiers_without_stores_are_told_to_be_one(plan, named):
    x0, by_hand = np.ones(4), plainly(30)[1]
    how = {"seed": np.ones_like, "steps": 30, "plan": plan}
    with pytest.warns(retape.RetapeWarning, match=f"{named} stay in memory"):
        found = run_program(step, reverse_step, x0, **how)
    assert found.cotangent.tobytes() == by_hand.tobytes()
    run_program(step, reverse_step, x0, store=retape.MemoryStore(), **how)


def test_the_last_step_of_a_stage_is_not_run_to_be_taped():
    runs = 0

    def counted(x, k):
        nonlocal runs
        runs += 1
        return step(x, k)

    report = call(
        counted, steps=60, plan=retape.fixed_space(snapshots=3, stage=6)
    ).report
    # `reverse_step` has the state before each step; only the run's end is computed.
    assert runs == report.advances + 60 - (report.reverses - 1)


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


@pytest.mark.parametrize("alpha", [1, 2, 5, 9])
@pytest.mark.parametrize("d", [1, 3, 6])
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


@pytest.mark.parametrize("in_place", [None, True])
def test_a_step_in_place_needs_no_option(in_place):
    start = np.ones(2)
    result = call(
        scale,
        lambda x, k, g: 1.01 * g,
        x0=start,
        in_place=in_place,
        steps=30,
        plan=retape.fixed_space(snapshots=2),
        verify="full",
    )
    assert np.allclose(result.cotangent, 1.01**30)
    assert start.tolist() == [1.0, 1.0] and start.flags.writeable


def test_a_random_step_is_found():
    source = np.random.default_rng(0)
    with pytest.raises(retape.DeterminismError, match="^step 8 gave another state"):
        call(
            lambda x, k: x + source.normal(),
            lambda x, k, g: g,
            x0=np.ones(2),
            steps=20,
            plan=retape.fixed_space(snapshots=2),
            verify="full",
        )


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


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"steps": 3, "seed": np.ones(2)}, r"`seed=array.* is not a function. `retape"),
        ({"done": 7}, "`done=7` is not a function"),
        ({"steps": 3, "tape": "t"}, "`tape='t'` is not a function"),
    ],
)
def test_what_is_passed_in_a_wrong_way_is_named(call, text):
    with pytest.raises(PlanError, match=text):
        options = {"seed": np.ones_like, **call}
        run_program(step, reverse_step, np.ones(4), **options)


def test_numbers_of_steps_may_be_numpys():
    state = call(
        lambda x, k: x + 1, lambda x, k, g: g, x0=0, seed=lambda x: 1, steps=np.int64(5)
    ).state
    assert state == 5


def test_a_step_that_changes_its_argument_against_the_hint_is_told():
    start = np.ones(4)
    with pytest.raises(ValueError, match="read-only") as found:
        call(scale, lambda x, k, g: g, x0=start, in_place=False, steps=3)
    assert "Leave `in_place` out if `step` is meant to." in found.value.__notes__[0]
    assert start.tolist() == [1.0] * 4 and start.flags.writeable
    with pytest.raises(MachineError, match="`step` returned `None` for step 0. Return"):
        call(lambda x, k: None, lambda x, k, g: g, steps=3)


@pytest.mark.parametrize("made", [np.ones(2), (1.0, 2.0, 3.0), None])
def test_a_tape_without_its_two_parts_is_named(made):
    kind = type(made).__name__
    with pytest.raises(MachineError, match=f"`tape` returned a `{kind}` for step 0"):
        call(step, reverse_from_tape, tape=lambda x, k: made, steps=3)
