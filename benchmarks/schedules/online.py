"""How far a run of unknown length stays above the offline optimum.

    python -m benchmarks.schedules.online [--longest 20000] [placements limits tiers]

For each number of snapshots the worst ratio of advances over all lengths, and the
length at which it is reached, for both placements.

Then what no policy at all can do better than, for small numbers of snapshots: the least
worst ratio over all ways of keeping and giving up snapshots, by exhaustive search.

Last two tiers: for each pair of slots and costs of a disk's write and read, the worst
and the mean ratio of the whole cost (advances, taping, sweeping back, writes, reads and
moves) over all lengths to 128 and some beyond, up to those for which the optimum is
exact.
"""

from collections.abc import Iterator
from math import inf
from typing import get_args

from benchmarks.harness import Table, asked

from retape import Tier
from retape.schedule import (
    Hierarchy,
    OnlineBinomial,
    OnlineTiers,
    Restore,
    Schedule,
    Store,
    replay,
)
from retape.schedule._placing._online import PlacementName

LIMITS = ((2, 120), (3, 70), (4, 60), (5, 40), (6, 35))
"""Snapshots, and the lengths up to which all policies are searched."""
TIERS = (
    (1, 1, 5), (2, 3, 5), (4, 10, 5), (0, 6, 5), (3, 20, 1), (3, 6, 20), (2, 12, 20),
)  # fmt: skip
"""Slots in memory, on the disk, and what a write and a read cost there."""


def main() -> None:
    """Print the tables."""
    tables = {"placements": placements, "limits": limits, "tiers": tiers}
    quick = {"longest": 100, "names": ["placements", "tiers"]}
    given = asked(__doc__, tables, quick, longest=20_000)
    for name in given.names:
        tables[name](given.longest)


def placements(longest: int) -> None:
    """The worst of each placement."""
    title = f"worst advances / optimum for n <= {longest}, and where (n)"
    names = get_args(PlacementName)
    table = Table("snapshots", *names, title=title)
    for snapshots in (1, 2, 3, 4, 5, 6, 8, 12, 20, 40):
        found = [worst(ours(snapshots, longest, name), snapshots) for name in names]
        table.row(snapshots, *(f"{ratio:.4f} ({n})" for ratio, n in found))


def limits(longest: int) -> None:
    """What no policy does better than."""
    table = Table("snapshots", "no policy is below", "for all n up to")
    for snapshots, upto in LIMITS:
        upto = min(upto, longest // 5)
        table.row(snapshots, limit(snapshots, upto), upto)


def tiers(longest: int) -> None:
    """Memory and a disk."""
    table = Table("memory", "disk", "write, read", "worst", "at n", "mean")
    for memory, disk, io in TIERS:
        online = OnlineTiers((Tier("memory", memory), Tier("disk", disk, io, io)))
        found = [
            (cost(online, n) / known.cost(), n)
            for n in lengths(min(longest, 3000))
            if (known := Hierarchy(n, online.tiers)).exact
        ]
        mean = sum(ratio for ratio, _ in found) / len(found)
        table.row(memory, disk, io, *max(found), mean)


def lengths(longest: int) -> list[int]:
    """All to 128, and some beyond."""
    beyond = 200, 300, 500, 1000, 2000, 3000
    return [n for n in (*range(1, 129), *beyond) if n <= longest]


def cost(online: OnlineTiers, n: int) -> float:
    """Everything, what was moved to disk included: once to memory, then to disk."""
    costs, actions = online.costs, list(online.actions(n))
    of = {tier.name: tier for tier in online.tiers}
    total = replay(actions, n).advances * costs.forward
    total += sum(of[a.tier].write for a in actions if isinstance(a, Store))
    total += sum(of[a.tier].read for a in actions if isinstance(a, Restore))
    # `actions` stores at once where the run would move to; what it gave up after that
    # it has written once, too.
    state, p = online.begin(), 0
    while (p := state.next_change(p, n - 1)) < n - 1:
        state, placed = state.place(p)
        moved = len(placed.moved)
        total += moved * (online.tiers[0].write + online.tiers[0].read)
        p += 1
    return total + n * (costs.tape + costs.backward)


def limit(snapshots: int, longest: int) -> float:
    """The least, over all policies, of the worst ratio up to a length.

    Policies that exceed an allowed ratio are left out. If none is left at some length,
    the least ratio of those left out is allowed instead: no policy has one in between.
    """
    allowed = 1.0
    while (refused := survive(snapshots, longest, allowed)) is not None:
        allowed = refused
    return allowed


def survive(snapshots: int, longest: int, allowed: float) -> float | None:
    """The least ratio refused, if no policy is left at some length; otherwise `None`.

    A policy knows nothing but that the run has not ended, so all there is to search is
    where its snapshots are.
    """
    reached, refused = {(0,)}, inf
    for n in range(2, longest + 1):
        optimum = Schedule(n, snapshots).counts().advances
        later: set[tuple[int, ...]] = set()
        for held in {new for old in reached for new in choices(old, snapshots, n - 2)}:
            ratio = (n - 1 + cheapest_turn(held, snapshots, n - 1)) / optimum
            if ratio <= allowed:
                later.add(held)
            else:
                refused = min(refused, ratio)
        if not later:
            return refused
        reached = later
    return None


def choices(
    held: tuple[int, ...], snapshots: int, stage: int
) -> Iterator[tuple[int, ...]]:
    """All that can be kept once a stage has been asked about."""
    yield held
    if stage and len(held) < snapshots:
        yield (*held, stage)
    elif stage:
        for j in range(1, snapshots):
            yield (*held[:j], *held[j + 1 :], stage)


def cheapest_turn(held: tuple[int, ...], snapshots: int, last: int) -> int:
    """The fewest advances of reversing below `last`, some snapshots given up or none.

    `after[i][used]` is for snapshot i as the `used`-th that is not given up.
    """
    after: list[dict[int, int]] = [{} for _ in held]
    for i in range(len(held) - 1, -1, -1):
        for used in range(1, i + 2):
            slots = snapshots - used + 1
            options = [Schedule(last - held[i], slots).counts().advances]
            for j in range(i + 1, len(held)):
                gap = Schedule(held[j] - held[i], slots).counts().advances
                options.append(gap + after[j][used + 1])
            after[i][used] = min(options)
    return after[0][1]


def worst(totals: Iterator[tuple[int, int]], snapshots: int) -> tuple[float, int]:
    """The largest ratio and its length."""
    return max(
        (total / Schedule(n, snapshots).counts().advances, n) for n, total in totals
    )


def ours(snapshots: int, longest: int, placement: str) -> Iterator[tuple[int, int]]:
    """(length, advances) of every length."""
    online = OnlineBinomial(snapshots, 1, placement)
    state = online.begin()
    for n in range(2, longest + 1):
        state, _ = state.place(n - 2)
        yield n, n - 1 + online.turn_advances(state, n)


if __name__ == "__main__":
    main()
