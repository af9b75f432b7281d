"""The loop on the integer machine: exact results, counts that were predicted."""

from itertools import count
from typing import Any

import pytest

import retape
from retape import MachineError, PlanError
from retape.driver import ToyMachine, run
from retape.schedule import Advance, OnlineBinomial, Reverse, Schedule, replay
from tests.driver.toys import ToyCapsule, Untaped

LENGTHS = [*range(0, 20), 41, 97]


def by_hand(length, x0=3):
    """Value and derivative, without the library."""
    p = (1 << 61) - 1
    x, slope = x0, 1
    for k in range(length):
        x, slope = (x * x + k) % p, slope * 2 * x % p
    return x, slope


def test_the_toy_is_right_and_the_check_would_see_a_lie():
    machine = ToyMachine(12)
    assert machine.reverse(machine.start(), 12, None) == by_hand(12)
    assert by_hand(12) != by_hand(12, x0=4)


def test_an_unknown_length_costs_the_online_schedule_and_the_last_stage():
    for n in LENGTHS:
        for snapshots in (1, 2, 5):
            for stage in (1, 4):
                plan = retape.fixed_space(snapshots=snapshots, stage=stage)
                machine = ToyMachine(n, tells_length=False)
                result, report = run(machine, plan)
                counts = replay(OnlineBinomial(snapshots, stage).actions(n), n)
                last = n - max(0, -(-n // stage) - 1) * stage
                assert result == by_hand(n)
                assert machine.advanced == report.advances == counts.advances + last
                assert report.stores == counts.stores
                assert report.peak_snapshots == counts.peak_snapshots
                assert report.length == n


def test_a_plan_in_bytes_is_kept_where_the_length_is_not_known():
    plan = retape.within(200)
    result, report = run(ToyMachine(100, tells_length=False), plan, tape_bytes=16)
    assert result == by_hand(100)
    assert result == by_hand(100)
    assert report.peak_bytes + 16 * report.longest_stage <= 200


NO_SCHEDULES = [
    (3, [Advance(0, 2)], "ended without a `Reverse`"),
    (3, [Reverse(1, 3)], "goes on from step 1, and the working .* 0"),
    (4, [Advance(0, 2), Reverse(2, 4), Reverse(0, 2)],
     "from step 0, and .* capsule is used up"),
    # Those of another length would give the gradient of a part of the run.
    (20, Schedule(10, 3), "ends at step 10, and 20 steps are left"),
    (10, Schedule(20, 3), "ends at step 20, and 10 steps are left"),
    (3, [Advance(0, 2), Reverse(2, 3)], "ended with 2 steps left. Pass a schedule"),
    (3, [Advance(0, 2), Reverse(2, 3), Reverse(2, 3)],
     "ends at step 3, and 2 steps are left"),
]  # fmt: skip


@pytest.mark.parametrize(("n", "actions", "said"), NO_SCHEDULES)
def test_a_stream_that_is_no_schedule_of_this_run_is_refused(n, actions, said):
    with pytest.raises(MachineError, match=said):
        run(ToyMachine(n), actions)
    assert run(ToyMachine(n), Schedule(n, 2)).result == by_hand(n)


@pytest.mark.parametrize("known", [True, False])
def test_progress_ends_at_the_predicted_work(known):
    """A run whose length is not known learns its total."""
    seen: list[Any] = []
    plan = retape.fixed_space(snapshots=3)
    run(ToyMachine(50, tells_length=known), plan, progress=seen.append)
    last = seen[-1]
    assert (last.reversed, last.length) == (50, 50) and last.done == last.total
    assert all(a.done <= b.done for a, b in zip(seen, seen[1:], strict=False))
    if known:
        assert last.total == plan.predict(50).advances + 50
    else:
        assert seen[0].total is None and seen[0].length is None


@pytest.mark.parametrize(
    ("known", "tick", "index", "line"),
    [
        (False, 20.0, 2, "2 steps run, length unknown, 0:20"),
        (False, 20.0, 6, "[###########         ]  56% 5/9 steps run, 1/4 reversed, "
         "1:40 < 1:40"),
        (True, 20.0, 4, "[#######             ]  38% 3/8 steps run, 0/4 reversed, "
         "1:00 < 1:40"),
        (True, 2000.0, 14, "[####################] 100% 8/8 steps run, 4/4 reversed, "
         "7:13:20 < 0:00  \n"),
    ],
)  # fmt: skip
def test_the_bar_draws_its_state_and_the_time_that_is_left(
    known, tick, index, line, monkeypatch, capsys
):
    clock = count(1000.0, tick)
    monkeypatch.setattr("retape.driver._progress.monotonic", lambda: next(clock))
    plan = retape.fixed_space(snapshots=2, stage=1)
    run(ToyMachine(4, tells_length=known), plan, progress=True)
    drawn = [text.rstrip(" ") for text in capsys.readouterr().err.split("\r")]
    assert drawn[0] == "" and drawn[index].split() == line.split()
    assert drawn[-1].endswith("\n") and len(drawn) == 15 + (not known)


def test_the_bar_is_drawn_ten_times_a_second_at_most(monkeypatch, capsys):
    clock = count(1000.0, 0.01)
    monkeypatch.setattr("retape.driver._progress.monotonic", lambda: next(clock))
    run(ToyMachine(50), retape.fixed_space(snapshots=3), progress=True)
    assert 1 < capsys.readouterr().err.count("\r") < 20


@pytest.mark.parametrize(
    ("actions", "last"),
    [
        (Schedule(9, 4), "100%"),
        (retape.fixed_space(snapshots=4, store={"state", "tape"}), "100%"),
        # Work that is not known beforehand.
        (list(Schedule(9, 4)), " steps run, 9/9 reversed, 0:00"),
    ],
)
def test_a_bar_can_be_asked_for(capsys, actions, last):
    run(ToyMachine(9), actions, progress=True)
    drawn = capsys.readouterr().err
    assert drawn.count(last) == drawn.count("\n") == 1 and drawn.endswith("\n")


def moody_from(step, advanced):
    """A toy whose step differs when it is run again."""

    class Moody(ToyMachine):
        def advance(self, capsule, steps):
            after, made = super().advance(capsule, steps)
            again = capsule.step <= step < after.step and self.advanced > advanced
            return ToyCapsule(after.step, after.value + again), made

    return Moody


def print_of(capsule):
    return capsule.value.to_bytes(16)


@pytest.mark.parametrize(
    ("n", "step", "verify", "said"),
    [
        (12, 7, "full", "^step 7 gave another state"),
        (5000, 3001, "cheap", "a step in 2992..3007 gave .*full"),
        (5000, 3001, "full", "^step 3001 gave another state"),
    ],
)
def test_a_step_that_differs_is_named_or_a_range_in_a_long_run(n, step, verify, said):
    plan, kind = retape.fixed_space(snapshots=n // 2000 + 2), moody_from(step, n)
    with pytest.raises(retape.DeterminismError, match=said):
        run(kind(n), plan, verify=verify, fingerprint=print_of)
    assert n > 12 or run(kind(n), plan).result != by_hand(n)


def test_a_machine_without_tapes_is_run_once_more_to_be_looked_at():
    class Moody(Untaped):
        def advance(self, capsule, steps):
            after, made = self.toy.advance(capsule, steps)
            if capsule.step == 17 and self.toy.taped:
                after = ToyCapsule(after.step, after.value + 1)
            return after, made

    plan = retape.fixed_space(snapshots=8, stage=5)
    outcome = run(Untaped(40), plan, verify="full", fingerprint=print_of)
    assert outcome.result == run(Untaped(40), plan).result
    with pytest.raises(retape.DeterminismError, match="^step 17 gave another"):
        run(Moody(40), plan, verify="full", fingerprint=print_of)


@pytest.mark.parametrize("verify", ["cheap", "full"])
@pytest.mark.parametrize("known", [True, False])
def test_a_machine_that_is_right_passes(verify, known):
    plan = retape.fixed_space(snapshots=3, stage=2)
    machine = ToyMachine(30, tells_length=known)
    outcome = run(machine, plan, verify=verify, fingerprint=print_of)
    assert outcome.result == by_hand(30)


def test_verify_needs_what_it_needs():
    plan = retape.fixed_space(snapshots=2)
    with pytest.raises(PlanError, match="`fingerprint` was not given"):
        run(ToyMachine(3), plan, verify="full")
    with pytest.raises(PlanError, match="`verify='twice'` is not known"):
        run(ToyMachine(3), plan, verify="twice")  # type: ignore[arg-type]
