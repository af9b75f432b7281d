"""Both ways to the package that pyadjoint obeys, tested against it."""

from itertools import pairwise
from math import log2
from typing import Any, NamedTuple

import pytest

import retape
from retape import PlanError, ScheduleError, Tier
from retape.driver import ToyMachine, run
from retape.interop import from_checkpoint_schedules, to_checkpoint_schedules
from retape.schedule import (
    Chain,
    Hierarchy,
    Mixed,
    OnlineBinomial,
    Schedule,
    replay,
)
from tests.driver.toys import by_itself
from tests.schedule.numbers import optimal_advances, spent

peer = pytest.importorskip("checkpoint_schedules")

TIERS = (peer.StorageType.RAM, peer.StorageType.DISK)


def two_tiers(n, memory, disk, cost):
    return Hierarchy(n, [Tier("memory", memory), Tier("disk", disk, cost, cost)])


class Obeyed(NamedTuple):
    """The gradient, and what it took.

    Attributes:
        most: States and tapes that were held at once.
        forward: The actions while it was run forward.
    """

    cotangent: Any
    advanced: int
    most: int
    forward: list[Any]


def obey(schedule, length):
    """An executor written for `checkpoint_schedules`, over the integer machine.

    A schedule that does not know the length is told at the end, as pyadjoint does.
    """
    machine, kept, forward, most = ToyMachine(length), {}, [], 0
    work, tape, cotangent, ended = machine.start(), None, None, False
    knows, at_the_end = schedule.max_n is not None, False
    for action in schedule:
        if not at_the_end:
            forward.append(action)
        match type(action).__name__:
            case "Forward":
                assert work is not None and work.step == action.n0
                stop = min(action.n1, length)
                if action.write_ics:
                    assert (action.n0, action.storage) not in kept
                    kept[action.n0, action.storage] = work
                if action.write_adj_deps and action.storage in TIERS:
                    made, work = machine.tape(work, stop - action.n0)
                    kept[action.n0, action.storage] = (made, action.n0, stop)
                elif action.write_adj_deps:
                    assert action.storage == peer.StorageType.WORK
                    tape = (work, action.n0, stop)
                    work = None
                else:
                    work, _ = machine.advance(work, stop - action.n0)
                if stop == length and schedule.max_n is None:
                    schedule.finalize(length)
            case "EndForward":
                at_the_end = True
                assert not knows or (tape is not None and tape[2] == length)
            case "Reverse":
                assert tape is not None and tape[1:] == (action.n0, action.n1)
                steps = action.n1 - action.n0
                if isinstance(tape[0], tuple):
                    cotangent = machine.sweep(tape[0], steps, cotangent)
                else:
                    cotangent = machine.reverse(tape[0], steps, cotangent)
            case "Copy" | "Move" as kind:
                held = kept[action.n, action.from_storage]
                if kind == "Move":
                    del kept[action.n, action.from_storage]
                if action.to_storage == peer.StorageType.WORK:
                    if isinstance(held, tuple):
                        work, tape = None, held
                    else:
                        work = held
            case "EndReverse":
                ended = True
                break
        most = max(most, len(kept))
    assert ended and schedule.is_exhausted and kept == {}
    return Obeyed(cotangent, machine.advanced, most, forward)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 45])
def test_code_written_for_the_peer_runs_our_schedules(n):
    streams = [
        Schedule(n, 3),
        Schedule(n, 1),
        Schedule(n, 4, 3, "bisection"),
        two_tiers(n, 1, 2, 1),
        Chain([1] * n, [2] * n, [3] * n, 9),
        tuple(OnlineBinomial(3).actions(n)),
        Mixed(n, 1),
        Mixed(n, 4),
        Mixed(n, 7, 3, 2, 2),
    ]
    for stream in streams:
        adapted = to_checkpoint_schedules(stream, n)
        assert isinstance(adapted, peer.CheckpointSchedule)
        found = obey(adapted, n)
        assert found.cotangent == by_itself(n)
        assert found.advanced == replay(stream, n).advances
        assert adapted.r == n and adapted.max_n == n


def test_storage_types_are_told():
    adapted = to_checkpoint_schedules(two_tiers(20, 1, 0, 5), 20)
    assert adapted.uses_storage_type(peer.StorageType.RAM)
    assert not adapted.uses_storage_type(peer.StorageType.DISK)


PEERS = [
    lambda n, s: peer.MultistageCheckpointSchedule(n, s, 0),
    lambda n, s: peer.MultistageCheckpointSchedule(n, 1, s, trajectory="maximum"),
    lambda n, s: peer.Revolve(n, s),
    lambda n, s: peer.HRevolve(n, s, 2),
    lambda n, s: peer.DiskRevolve(n, s),
]


@pytest.mark.parametrize("make", PEERS, ids=range(len(PEERS)))
@pytest.mark.parametrize(("n", "s"), [(5, 1), (12, 3), (30, 4)])
def test_our_driver_runs_their_schedules_and_never_with_fewer_advances(make, n, s):
    actions = list(from_checkpoint_schedules(make(n, s), n))
    outcome = run(ToyMachine(n), actions)
    assert outcome.result == by_itself(n)
    counts = replay(actions, n)
    assert counts.advances >= optimal_advances(n, max(1, counts.peak_snapshots))


@pytest.mark.parametrize(("n", "memory"), [(13, 1), (30, 3), (60, 2), (100, 5)])
def test_no_peer_is_cheaper_on_two_tiers(n, memory):
    """Advances, writes and reads together, with the peers' own costs."""

    def cost(actions):
        return spent(actions, [Tier("memory", 1), Tier("disk", 1, 2, 2)])

    for disk in (1, 2, 5):
        theirs = cost(from_checkpoint_schedules(peer.HRevolve(n, memory, disk), n))
        assert cost(two_tiers(n, memory, disk, 2)) <= theirs
    ours = two_tiers(n, memory, n, 2)
    assert ours.exact
    for make in (peer.DiskRevolve, peer.PeriodicDiskRevolve):
        assert cost(ours) <= cost(from_checkpoint_schedules(make(n, memory), n))


@pytest.mark.filterwarnings("ignore:Numba not available")
@pytest.mark.parametrize("storage", TIERS)
def test_mixed_schedules_go_both_ways_with_the_same_advances(storage):
    for n in (1, 2, 3, 9, 24):
        for s in (1, 2, 5):
            theirs = peer.MixedCheckpointSchedule(n, s, storage=storage)
            actions = list(from_checkpoint_schedules(theirs, n))
            counts, ours = replay(actions, n, capacity=s, stage=1), Mixed(n, s).counts()
            assert counts.advances == ours.advances
            assert counts.kept_tapes + counts.stores >= ours.kept_tapes + ours.stores
            assert (
                run(ToyMachine(n), actions).result
                == run(ToyMachine(n), Mixed(n, s)).result
            )


def test_their_schedules_of_unknown_length():
    schedule = peer.TwoLevelCheckpointSchedule(3, binomial_snapshots=2)

    def told():
        for action in schedule:
            if isinstance(action, peer.Forward) and schedule.max_n is None:
                if action.n1 >= 10:
                    schedule.finalize(10)
            yield action

    actions = list(from_checkpoint_schedules(told(), 10))
    assert run(ToyMachine(10), actions).result == by_itself(10)


def test_there_and_back_is_the_same_schedule():
    for schedule in (
        Schedule(30, 3),
        Schedule(31, 4, 2),
        two_tiers(25, 2, 2, 5),
        Mixed(30, 4),
    ):
        n = schedule.length
        back = from_checkpoint_schedules(to_checkpoint_schedules(schedule, n), n)
        assert list(back) == list(schedule)


@pytest.mark.parametrize("n", [1, 2, 7, 20])
@pytest.mark.parametrize("kind", ["memory", "disk", "moved", "two-level"])
def test_online_schedules_of_the_peers_are_told_the_length(n, kind):
    """They go forward without end until somebody does."""
    make = {
        "memory": peer.SingleMemoryStorageSchedule,
        "disk": peer.SingleDiskStorageSchedule,
        "moved": lambda: peer.SingleDiskStorageSchedule(move_data=True),
        "two-level": lambda: peer.TwoLevelCheckpointSchedule(3, 2),
    }[kind]
    actions = list(from_checkpoint_schedules(make(), n))
    counts = replay(actions, n)
    assert counts.taped == n
    assert counts.longest_stage == (n if kind == "memory" else 1)
    result = run(ToyMachine(n), actions).result
    assert result == run(ToyMachine(n), retape.segments()).result


def endless():
    k = 0
    while True:
        yield peer.Forward(k, k + 1, True, False, peer.StorageType.DISK)
        k += 1


MOVED = [peer.Forward(0, 1, False, True, TIERS[1]), peer.Move(0, *reversed(TIERS))]
REFUSED = {
    "keeps a state and a tape in one slot": [peer.Forward(0, 1, True, True, TIERS[1])],
    "moves a tape between tiers": MOVED,
    "`3` is not an action of": [3],
    "reverses nothing. Pass a schedule for an adj": peer.NoneCheckpointSchedule(),
    "goes on beyond the 5 steps of the run": endless(),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_translated_is_refused(words):
    with pytest.raises((PlanError, ScheduleError), match=words):
        list(from_checkpoint_schedules(REFUSED[words], 5))


def test_a_run_without_a_step_is_refused():
    with pytest.raises(PlanError, match="knows no runs without a step"):
        list(from_checkpoint_schedules(endless(), 0))


# Managers that tape as they go ------------------------------------------------------


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("placement", ["doubling", "least-cost"])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 17, 100])
def test_a_manager_that_tapes_gets_the_gradient(length, placement, drops):
    for snapshots in (1, 2, 5):
        online = OnlineBinomial(snapshots, placement=placement)
        schedule = to_checkpoint_schedules(online, drops=drops)
        found = obey(schedule, length)
        assert found.cotangent == by_itself(length)
        assert schedule.max_n == length and schedule.r == length
        if drops:
            assert found.most <= snapshots
        else:
            # All that pyadjoint's `process_taping` knows.
            *taped, end = found.forward
            assert all(isinstance(action, peer.Forward) for action in taped)
            assert isinstance(end, peer.EndForward)


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
    assert schedule.uses_storage_type(
        peer.StorageType.RAM
    ) and not schedule.uses_storage_type(peer.StorageType.WORK)
