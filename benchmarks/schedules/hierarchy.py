"""How far schedules over many tiers are from the optimum where its table is too large.

    python -m benchmarks.schedules.hierarchy [--cases 150]

First, hierarchies for which the optimum is known, made as if it were not: the worst and
the mean ratio of the costs. Then long runs: the time to decide, the bound that is
stated, and the cost against the nested programme with all slots and stages told apart,
where that takes less than a minute.
"""

import argparse
import random
from time import process_time

from retape import Tier
from retape.schedule import Hierarchy
from retape.schedule import _hierarchy_rules as rules
from retape.schedule._nested_table import NestedTable

AMOUNTS = (0, 0.5, 1, 3, 8)
LONG = (3_000, 10_000, 100_000, 1_000_000)
SLOTS = ((3, 20, 100), (10, 100, 10_000), (2, 5, 10))
COSTS = (0, 1, 8)
_MOST = 20_000_000_000


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=150)
    cases = parser.parse_args().cases
    print("| costs | cases | dearer | worst | mean |\n|---|---|---|---|---|")
    rng = random.Random(21)
    for kind in ("rising", "any"):
        ratios = [ratio(rng, kind == "rising") for _ in range(cases)]
        dearer = sum(each > 1 + 1e-9 for each in ratios)
        print(
            f"| {kind} | {cases} | {dearer} | {max(ratios):.4f} | "
            f"{sum(ratios) / cases:.5f} |",
            flush=True,
        )
    print("\n| n | slots | seconds | cost per step | bound | over nested |")
    print("|---|---|---|---|---|---|")
    for n in LONG:
        for slots in SLOTS:
            print(long_run(n, slots), flush=True)


def ratio(rng: random.Random, rising: bool) -> float:
    """The cost beyond the table of one hierarchy over its optimum."""
    while True:
        count = rng.randint(2, 3)
        writes = [rng.choice(AMOUNTS) for _ in range(count)]
        reads = [rng.choice(AMOUNTS) for _ in range(count)]
        if rising:
            writes, reads = sorted(writes), sorted(reads)
        tiers = tuple(
            Tier(f"tier {i}", rng.randint(0, 5), write, read)
            for i, (write, read) in enumerate(zip(writes, reads, strict=True))
        )
        if any(tier.snapshots for tier in tiers):
            break
    schedule, largest = Hierarchy(rng.randint(5, 120), tiers), rules.EXACT
    least = schedule.cost()
    assert schedule.exact
    try:
        rules.EXACT = 0
        rules.decided.cache_clear()
        return schedule.cost() / least
    finally:
        rules.EXACT = largest
        rules.decided.cache_clear()


def long_run(n: int, slots: tuple[int, ...]) -> str:
    """A row of the second table."""
    tiers = tuple(
        Tier(f"tier {i}", count, cost, cost)
        for i, (count, cost) in enumerate(zip(slots, COSTS, strict=True))
    )
    schedule, began = Hierarchy(n, tiers), process_time()
    cost = schedule.cost()
    spent = process_time() - began
    useful, bare = schedule._task.slots, schedule._task.tiers
    over = ""
    if n**2 * sum(min(count, n) for count in useful) <= _MOST:
        least = 2 * n + NestedTable(n, useful, bare, 1.0).best(n)
        over = f"{cost / least:.4f}"
    shown = ", ".join(map(str, slots))
    return (
        f"| {n} | {shown} | {spent:.1f} | {cost / n:.3f} | {schedule.bound():.3f} "
        f"| {over} |"
    )


if __name__ == "__main__":
    main()
