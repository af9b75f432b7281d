"""The validator says no: every rule of the actions, broken once."""

import pytest

from retape import ScheduleError
from retape.schedule import (
    Advance,
    Drop,
    Restore,
    Reverse,
    Schedule,
    Store,
    Sweep,
    Tape,
    replay,
)


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ([Advance(1, 2)], "the working capsule is at step 0, not at step 1"),
        ([Advance(0, 0)], "it does not go forward"),
        ([Advance(0, 3)], "it runs to step 3, and only steps below 3 are left"),
        ([Store(1, 0)], "the working capsule is at step 0, not at step 1"),
        ([Store(0, 0), Store(0, 0)], "the slot holds step 0 already"),
        ([Store(0, -1)], "slots are numbered from 0"),
        ([Store(0, 0), Store(0, 1), Store(0, 2)], "3 snapshots where 2 may live"),
        ([Restore(0, 0)], "slot 0 on tier 'memory' is empty"),
        ([Drop(0, 0, "disk")], "slot 0 on tier 'disk' is empty"),
        ([Store(0, 0), Restore(1, 0)], "the slot holds step 0"),
        ([Reverse(1, 3)], "the working capsule is at step 0, not at step 1"),
        ([Reverse(0, 2)], "the next step to be reversed is 2"),
        ([Reverse(0, 3)], "a stage of 3 steps is taped where 2 may be"),
        ([Advance(0, 2), Reverse(2, 3), Reverse(2, 3)], "capsule is used up"),
        ([Advance(0, 2), Reverse(2, 2)], "the next step to be reversed is 2"),
        ([Tape(1, 2, 0)], "the working capsule is at step 0, not at step 1"),
        ([Tape(0, 0, 0)], "it does not go forward"),
        ([Tape(0, 3, 0)], "it runs to step 3, and only steps below 3 are left"),
        ([Store(0, 0), Tape(0, 1, 0)], "the slot holds step 0 already"),
        ([Tape(0, 1, 0), Restore(0, 0)], "a tape, from which no step can be run"),
        ([Tape(0, 1, 0), Sweep(0, 1, 0)], "the next step to be reversed is 2"),
        ([Tape(0, 1, 0), Sweep(0, 2, 0)], "holds the tape of steps 0..0, not the"),
        ([Store(0, 0), Sweep(0, 1, 0)], "the slot holds a state, not the tape of"),
        ([Sweep(0, 1, 0)], "slot 0 on tier 'memory' is empty"),
    ],
)
def test_a_broken_rule_is_named_with_its_place(actions, text):
    with pytest.raises(ScheduleError, match=f"action {len(actions) - 1}, .*{text}"):
        replay(actions, 3, capacity=2, stage=2)


@pytest.mark.parametrize(
    ("actions", "told", "text"),
    [
        ([Store(0, 0), Advance(0, 2), Reverse(2, 3)], {}, "ends with 2 of `length=3`"),
        ([Store(0, 0), Reverse(0, 3)], {}, "step 0 still in slot 0 on tier 'memory'"),
        (
            [Store(0, 0, "disk"), Store(0, 0, "memory")],
            {"capacity": {"disk": 1}},
            "tier 'memory' would hold 1 snap",
        ),
        (
            [Advance(0, 1), Store(1, 0), Reverse(1, 3), Restore(1, 0), Reverse(1, 1)],
            {},
            "action 4, .*it has no steps",
        ),
        ([Tape(0, 1, 0), Tape(1, 2, 1)], {"capacity": 1}, "2 snapshots where 1 may"),
        ([Tape(0, 2, 0)], {"stage": 1}, "stage of 2 steps is taped where 1 may"),
    ],
)
def test_so_is_what_is_left_over_or_beyond_what_is_told(actions, told, text):
    with pytest.raises(ScheduleError, match=text):
        replay(actions, 3, **told)


def test_actions_of_different_kinds_are_never_equal():
    assert Advance(0, 1) == Advance(0, 1) and Advance(0, 1) != Reverse(0, 1)
    assert Store(0, 0) != Drop(0, 0) and Advance(0, 1) != (0, 1)
    assert (0, 1) != Advance(0, 1) and len({Store(0, 0), Restore(0, 0)}) == 2


def test_an_empty_run_is_one_empty_stage():
    assert replay([Reverse(0, 0)], 0).reverses == 1
    with pytest.raises(ScheduleError, match="not reversed"):
        replay([], 0)
    with pytest.raises(ScheduleError, match="action 1, .* capsule is used up"):
        replay([Reverse(0, 0), Reverse(0, 0)], 0)
    with pytest.raises(ScheduleError, match="action 1, `7`, is not an action of `reta"):
        replay([Reverse(0, 0), 7], 0)


@pytest.mark.parametrize("change", ["remove", "repeat", "swap"])
def test_almost_every_small_lie_is_caught(change, seeded):
    honest = list(Schedule(20, 3))
    lies = caught = 0
    for i in range(len(honest) - 1):
        actions = list(honest)
        if change == "remove":
            del actions[i]
        elif change == "repeat":
            actions.insert(i, actions[i])
        else:
            actions[i], actions[i + 1] = actions[i + 1], actions[i]
        lies += 1
        try:
            same = replay(actions, 20, capacity=3, stage=1) == replay(honest, 20)
        except ScheduleError:
            caught += 1
        else:
            assert same or change != "remove"
    # A Restore twice, or a Drop moved across its neighbour, is a legal schedule.
    assert caught > lies / 2
