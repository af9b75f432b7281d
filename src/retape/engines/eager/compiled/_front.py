"""The best plans of a graph for every budget at once: less memory, or less repeated.

One table gives all budgets their plans, so that a larger one never holds less and
never repeats more.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from retape.engines.eager.compiled._closure import closure, direct
from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._cut import cheapest
from retape.engines.eager.compiled._improve import Exchange
from retape.engines.eager.compiled._joint import Joint
from retape.engines.eager.compiled._ladder import Ladder, Rung
from retape.engines.eager.compiled._liveness import Account, account
from retape.engines.eager.compiled._paths import bytes_of, dropping
from retape.engines.eager.compiled._stretches import Stretch, Stretches

CUTS = 40
LEVELS = 256
TARGETS = 48
# Of plans that are counted: fewer of a larger graph, whose count takes longer, and of
# one with few values to choose from. Both together take about three seconds at most.
EFFORT = 1_500_000
EXCHANGES, EXCHANGES_PER_VALUE = 5_000_000, 40


def front(
    joint: Joint, usual: Collection[int], free: Collection[int]
) -> tuple[Account, ...]:
    """Plans in order of their peaks, each repeating less than those before it.

    Args:
        joint: The graph.
        usual: What the compiler saves by itself.
        free: What it runs again by itself, fused with what reads it.
    """
    known = _Known(joint, free)
    policies = [direct(joint), frozenset(usual), frozenset()]
    policies += [cheapest(joint, price, free) for price in _prices(joint)]
    known.add(policies)
    stretches = Stretches(joint, list(known.plans), free, CUTS)
    known.add(_chains(stretches, max(known.plans.values())))
    for policy in policies:
        known.add(dropping(joint, policy, free))
    values = sum(joint.savable[k] for k in known.counter.reached)
    most = min(EXCHANGES // len(joint.nodes), EXCHANGES_PER_VALUE * values)
    Exchange(known.counter, known.ladder).run(most)
    return pareto(account(joint, each.keep, free) for each in known.ladder)


def _prices(joint: Joint) -> list[float]:
    """Prices of a byte at which something changes: what products cost for theirs."""
    worth = sorted(
        joint.cost[k] / bytes_of(joint, k)
        for k in closure(joint, joint.needed, ()).again
        if joint.flops[k]
    )
    marks = {worth[len(worth) * q // 4] for q in range(4)} if worth else set()
    return [0.5, 2.0, *sorted(factor * m for m in marks for factor in (0.9, 1.1))]


class _Known:
    """Plans that were counted, until enough of them were.

    Attributes:
        plans: The peak of each, by what it saves.
        ladder: The best of them.
    """

    def __init__(self, joint: Joint, free: Collection[int]) -> None:
        self.counter, self.ladder = PlanCounter(joint, free), Ladder()
        self.plans: dict[frozenset[int], int] = {}
        self.left = max(200, EFFORT // len(joint.nodes))

    def add(self, plans: Iterable[frozenset[int]]) -> None:
        """Count more plans."""
        for keep in plans:
            if self.left <= 0:
                return
            if keep not in self.plans:
                self.left -= 1
                plan = self.counter(keep)
                self.plans[keep] = plan.peak
                self.ladder.offer(Rung(plan.peak, plan.cost, keep))


def pareto(plans: Iterable[Account]) -> tuple[Account, ...]:
    """The plans that no other one beats, by peak and by cost."""
    best: list[Account] = []
    for plan in sorted(plans, key=lambda each: (each.peak, each.cost, each.saved)):
        if not best or plan.cost < best[-1].cost:
            best.append(plan)
    return tuple(best)


def _chains(stretches: Stretches, most: int) -> Iterable[frozenset[int]]:
    """Plans put together from stretches, for peaks from nothing to `most`.

    The state is the number of a cut and the bytes saved before it, on a grid; its value
    is the least cost that leads there (a knapsack along the chain).
    """
    count = stretches.count
    ways = {
        (a, b): stretches.ways(a, b) for a in range(count) for b in range(a + 1, count)
    }
    step = max(1, most / LEVELS)
    for target in np.geomspace(most / 200, most, TARGETS):
        keep = _best_chain(ways, count, float(target), step)
        if keep is not None:
            yield keep


def _best_chain(
    ways: dict[tuple[int, int], list[Stretch]],
    count: int,
    target: float,
    step: float,
) -> frozenset[int] | None:
    grid = int(target / step) + 2
    cost = np.full((count, grid), np.inf)
    cost[0, 0] = 0
    came: list[list[tuple[int, Stretch] | None]] = [[None] * grid for _ in range(count)]
    for end in range(1, count):
        for start in range(end):
            for way in ways[start, end]:
                room = target - way.extra
                if room < 0:
                    continue
                before = min(grid, int(room / step) + 1)
                move = round(way.saved / step)
                reach = min(before, grid - move)
                if reach <= 0:
                    continue
                offered = cost[start, :reach] + way.cost
                place = cost[end, move : move + reach]
                better = offered < place
                for k in np.flatnonzero(better):
                    came[end][int(k) + move] = (int(k), way)
                place[better] = offered[better]
    last = int(np.argmin(cost[-1]))
    if not np.isfinite(cost[-1, last]):
        return None
    return _collect(came, count - 1, last)


def _collect(
    came: Sequence[Sequence[tuple[int, Stretch] | None]], end: int, level: int
) -> frozenset[int]:
    keep: set[int] = set()
    while end:
        step = came[end][level]
        assert step is not None
        level, way = step
        keep |= way.keep
        end = way.start
    return frozenset(keep)
