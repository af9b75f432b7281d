"""How far two tiers and mixed slots stay above the optimum of a known length.

    python -m benchmarks.schedules.online_tiers [--longest 3000]

For each pair of slots and costs of a disk's write and read, the worst and the mean
ratio of the whole cost (advances, taping, sweeping back, writes, reads and moves) over
all lengths to 128 and some beyond, up to those for which the optimum is exact.
"""

import argparse
from typing import Any

from retape import Tier
from retape.schedule import (
    Hierarchy,
    Mixed,
    OnlineMixed,
    OnlineTiers,
    Restore,
    Store,
    replay,
)

TIERS = (
    (1, 1, 5),
    (2, 3, 5),
    (4, 10, 5),
    (0, 6, 5),
    (3, 20, 1),
    (3, 6, 20),
    (2, 12, 20),
)
MIXED = ((3, 1, 1), (10, 1, 1), (20, 2, 1), (20, 1, 2))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=3_000)
    longest = parser.parse_args().longest
    print(
        "| memory | disk | write, read | worst | at n | mean |\n"
        "|---|---|---|---|---|---|"
    )
    for memory, disk, io in TIERS:
        online = OnlineTiers((Tier("memory", memory), Tier("disk", disk, io, io)))
        found = [
            (cost(online, n) / known.cost(), n)
            for n in lengths(longest)
            if (known := Hierarchy(n, online.tiers)).exact
        ]
        worst, at = max(found)
        mean = sum(ratio for ratio, _ in found) / len(found)
        print(
            f"| {memory} | {disk} | {io} | {worst:.3f} | {at} | {mean:.3f} |",
            flush=True,
        )
    print(
        "\n| slots | state | tape | worst | at n "
        "| worst from 3 times the slots | n=1000 |"
    )
    for sizes in MIXED:
        rows = [
            (steps(OnlineMixed(*sizes), n) / steps(Mixed(n, *sizes), n), n)
            for n in lengths(min(longest, 1000))
        ]
        worst, at = max(rows)
        later = max(ratio for ratio, n in rows if n >= 3 * sizes[0])
        print(
            f"| {' | '.join(map(str, sizes))} | {worst:.3f} | {at} | {later:.3f} | "
            f"{rows[-1][0]:.3f} |",
            flush=True,
        )


def lengths(longest: int) -> list[int]:
    """All to 128, and some beyond."""
    return [
        n for n in (*range(1, 129), 200, 300, 500, 1000, 2000, 3000) if n <= longest
    ]


def cost(online: OnlineTiers, n: int) -> float:
    """Everything, what was moved to disk included: once to memory, then to disk."""
    costs, actions = online.costs, list(online.actions(n))
    of = {tier.name: tier for tier in online.tiers}
    total = replay(actions, n).advances * costs.forward
    total += sum(of[a.tier].write for a in actions if isinstance(a, Store))
    total += sum(of[a.tier].read for a in actions if isinstance(a, Restore))
    moves = sum(len(placed.moved) for placed in asked(online, n))
    total += moves * (online.tiers[0].write + online.tiers[0].read)
    # `actions` stores at once where the run would move to; what it gave up after that
    # it has written once, too.
    return total + n * (costs.tape + costs.backward)


def asked(online: OnlineTiers, n: int) -> list[Any]:
    """All decisions of the way forward."""
    state, found, p = online.begin(), list[Any](), 0
    while (p := state.next_change(p, n - 1)) < n - 1:
        state, placed = state.place(p)
        found.append(placed)
        p += 1
    return found


def steps(schedule: OnlineMixed | Mixed, n: int) -> int:
    """Steps run, taped ones included."""
    actions = schedule.actions(n) if isinstance(schedule, OnlineMixed) else schedule
    return replay(actions, n).advances + n


if __name__ == "__main__":
    main()
