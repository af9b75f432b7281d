"""The way to the package that pyadjoint obeys, tested against it."""

from itertools import pairwise
from math import log2
from typing import Any, NamedTuple

import pytest

from retape import PlanError, Tier
from retape.driver import ToyMachine
from retape.interop import to_checkpoint_schedules
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


def spent_by(theirs, n):
    """Advances, writes and reads of a schedule of that package, with its own costs.

    An advance over the very last step, which some make before they go back, is none.
    """
    total = 0
    for action in theirs:
        match type(action).__name__:
            case "Forward":
                total += 2 * (action.write_ics and action.storage == TIERS[1])
                if not action.write_adj_deps and action.n1 < n:
                    total += action.n1 - action.n0
                if action.n1 >= n and theirs.max_n is None:
                    theirs.finalize(n)
            case "Copy" | "Move":
                total += 2 * (action.from_storage == TIERS[1])
                total += 2 * (action.to_storage == TIERS[1])
            case "EndReverse":
                return total


@pytest.mark.parametrize(("n", "memory"), [(13, 1), (30, 3), (60, 2), (100, 5)])
def test_no_peer_is_cheaper_on_two_tiers(n, memory):
    """Advances, writes and reads together, with the peers' own costs."""

    def cost(schedule):
        return spent(schedule, [Tier("memory", 1), Tier("disk", 1, 2, 2)])

    for disk in (1, 2, 5):
        theirs = spent_by(peer.HRevolve(n, memory, disk), n)
        assert cost(two_tiers(n, memory, disk, 2)) <= theirs
    ours = two_tiers(n, memory, n, 2)
    assert ours.exact
    for make in (peer.DiskRevolve, peer.PeriodicDiskRevolve):
        assert cost(ours) <= spent_by(make(n, memory), n)
    adapted = to_checkpoint_schedules(ours, n)
    assert spent_by(adapted, n) == cost(ours)


@pytest.mark.filterwarnings("ignore:Numba not available")
@pytest.mark.parametrize("storage", TIERS)
def test_mixed_schedules_of_the_peer_have_the_same_advances(storage):
    for n in (1, 2, 3, 9, 24):
        for s in (1, 2, 5):
            theirs = peer.MixedCheckpointSchedule(n, s, storage=storage)
            found, ours = obey(theirs, n), Mixed(n, s)
            assert found.advanced == ours.counts().advances and found.most <= s
            assert found.cotangent == by_itself(n)


def test_a_run_without_a_step_is_refused():
    with pytest.raises(PlanError, match="knows no runs without a step"):
        to_checkpoint_schedules(Schedule(1, 1), 0)


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
    doublings = max(0.0, log2(length / 8))
    most = obey(to_checkpoint_schedules(online), length).most
    assert most <= 8 + 4 * (doublings + 1) + 7
    advances = spent_by(to_checkpoint_schedules(online), length)
    assert advances <= 1.6 * optimal_advances(length, 8)


def test_with_drops_the_number_of_snapshots_is_a_bound():
    for placement in ("doubling", "least-cost"):
        online = OnlineBinomial(5, placement=placement)
        assert obey(to_checkpoint_schedules(online, drops=True), 500).most <= 5
        advances = spent_by(to_checkpoint_schedules(online, drops=True), 500)
        assert advances <= 1.5 * optimal_advances(500, 5)


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
