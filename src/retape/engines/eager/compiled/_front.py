"""The best plans of a graph for every budget at once: less memory, or less repeated.

One table gives all budgets their plans, so that a larger one never holds less and
never repeats more.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

import numpy as np

from retape.engines.eager.compiled._closure import closure, direct
from retape.engines.eager.compiled._cut import cheapest
from retape.engines.eager.compiled._joint import Joint
from retape.engines.eager.compiled._liveness import Account, account
from retape.engines.eager.compiled._paths import adding, bytes_of, dropping
from retape.engines.eager.compiled._stretches import Stretch, Stretches

CUTS = 40
LEVELS = 256
TARGETS = 48
STEPS = 8
ROUNDS = 2
EFFORT = 1_500_000


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
    known.add(_chains(stretches, max(each.peak for each in known.plans.values())))
    for policy in policies:
        known.add(dropping(joint, policy, free))
    for _ in range(ROUNDS):
        for plan in pareto(known.plans.values()):
            known.add(adding(joint, known.saved(plan), free))
        # Between two plans: the dearer value is saved, and some cheap ones are not.
        for plan in pareto(known.plans.values()):
            known.add(islice(dropping(joint, known.saved(plan), free), STEPS))
    return pareto(known.plans.values())


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
    """Plans that were counted, by what they save, until enough of them were."""

    def __init__(self, joint: Joint, free: Collection[int]) -> None:
        self.joint, self.free = joint, free
        self.plans: dict[frozenset[int], Account] = {}
        self.left = max(200, EFFORT // len(joint.nodes))

    def add(self, plans: Iterable[frozenset[int]]) -> None:
        """Count more plans."""
        for keep in plans:
            if self.left <= 0:
                return
            if keep not in self.plans:
                self.left -= 1
                self.plans[keep] = account(self.joint, keep, self.free)

    def saved(self, plan: Account) -> frozenset[int]:
        """What a plan saves, without what was there before."""
        return frozenset(k for k in plan.keep if not self.joint.given[k])


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
