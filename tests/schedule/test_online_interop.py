"""An online schedule for managers that tape as they go: right, and within its slots."""

from itertools import pairwise
from math import log2

import pytest

from retape.interop import from_checkpoint_schedules, to_checkpoint_schedules
from retape.schedule import OnlineBinomial, replay
from tests.schedule.numbers import optimal_advances

peer = pytest.importorskip("checkpoint_schedules")
RAM, WORK, NONE = (peer.StorageType[name] for name in ("RAM", "WORK", "NONE"))


def gradient(schedule, length, x=0.5, rate=1.1):
    """A manager that is told of each step as it is taken, as pyadjoint's is.

    The program is x -> rate x (1 - 0.3 x); returns its derivative, the actions while
    it was run forward, and the most states that were held at once.
    """
    step = lambda x: rate * x * (1 - 0.3 * x)  # noqa: E731
    held, states, forward, most = {}, [x], [], 0
    action = next(schedule)
    forward.append(action)
    for k in range(length):
        while not (isinstance(action, peer.Forward) and k in action):
            if isinstance(action, peer.Move):
                assert action.to_storage == NONE
                del held[action.n]
            action = next(schedule)
            forward.append(action)
        if action.write_ics and k == action.n0:
            held[k] = x
        x, most = step(x), max(most, len(held))
        states.append(x)
    schedule.finalize(length)
    assert isinstance(next(schedule), peer.EndForward)
    back, at, needed = 2 * x, None, {}
    for action in schedule:
        match type(action).__name__:
            case "Copy" | "Move":
                at = action.n, held[action.n]
                if type(action).__name__ == "Move":
                    del held[action.n]
            case "Forward":
                assert at is not None and at[0] == action.n0
                for k in range(action.n0, action.n1):
                    assert at[1] == states[k]
                    if action.write_ics and k == action.n0:
                        held[k] = at[1]
                    if action.write_adj_deps:
                        needed[k] = at[1]
                    at = k + 1, step(at[1])
                most = max(most, len(held))
            case "Reverse":
                for k in action:
                    back *= rate * (1 - 0.6 * needed.pop(k))
            case "EndReverse":
                break
    assert schedule.is_exhausted and not held and not needed
    return back, forward, most, states


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("placement", ["doubling", "least-cost"])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 17, 100])
def test_a_manager_that_tapes_gets_the_gradient(length, placement, drops):
    for snapshots in (1, 2, 5):
        online = OnlineBinomial(snapshots, placement=placement)
        schedule = to_checkpoint_schedules(online, drops=drops)
        found, forward, most, states = gradient(schedule, length)
        want = 2 * states[-1]
        for x in reversed(states[:-1]):
            want *= 1.1 * (1 - 0.6 * x)
        assert found == pytest.approx(want, rel=1e-13)
        assert schedule.max_n == length and schedule.r == length
        if drops:
            assert most <= snapshots
        else:
            # All that pyadjoint's `process_taping` knows.
            assert all(isinstance(action, peer.Forward) for action in forward)


@pytest.mark.parametrize("length", [1, 7, 64, 1000, 4000])
def test_what_is_kept_grows_with_the_logarithm_of_the_length(length):
    online = OnlineBinomial(8, placement="doubling")
    schedule = to_checkpoint_schedules(online)
    counts = replay(from_checkpoint_schedules(schedule, length), length)
    doublings = max(0.0, log2(length / 8))
    assert counts.peak_snapshots <= 8 + 4 * (doublings + 1) + 7
    assert counts.advances <= 1.6 * optimal_advances(length, 8)


def test_with_drops_the_number_of_snapshots_is_a_bound():
    for placement in ("doubling", "least-cost"):
        online = OnlineBinomial(5, placement=placement)
        schedule = to_checkpoint_schedules(online, drops=True)
        counts = replay(from_checkpoint_schedules(schedule, 500), 500, capacity=5)
        assert counts.advances <= 1.5 * optimal_advances(500, 5)


def test_forward_actions_follow_one_another_without_a_gap():
    online = OnlineBinomial(3, placement="doubling")
    schedule = to_checkpoint_schedules(online)
    actions = [next(schedule) for _ in range(40)]
    assert actions[0].n0 == 0
    assert all(a.n1 == b.n0 for a, b in pairwise(actions))
    assert not schedule.is_exhausted
    assert schedule.uses_storage_type(RAM) and not schedule.uses_storage_type(WORK)
