"""The best plans of a graph for every budget at once: less memory, or less repeated.

One table gives all budgets their plans, so that a larger one never holds less and
never repeats more.
"""

import heapq
from collections.abc import Collection, Iterator
from itertools import chain, islice
from math import inf

from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._cut import cheapest
from retape.engines.eager.compiled._improve import Exchange
from retape.engines.eager.compiled._ladder import Ladder, Rung

# Plans that are counted: fewer of a larger graph, whose count takes longer, and of one
# with few values to choose from. Both together take about three seconds at most.
EFFORT = 1_500_000
EXCHANGES, EXCHANGES_PER_VALUE = 5_000_000, 40


def front(counter: PlanCounter, usual: frozenset[int]) -> Ladder:
    """Plans in order of their peaks, each repeating less than those before it.

    Args:
        counter: Counts plans of the graph.
        usual: What the compiler saves by itself.
    """
    joint, ladder = counter.joint, Ladder()
    policies = [joint.direct, usual, frozenset[int]()]
    policies += [cheapest(counter, price) for price in _prices(counter)]
    ways = (_dropping(counter, policy) for policy in policies)
    for keep in islice(chain(policies, *ways), max(200, EFFORT // len(joint.nodes))):
        plan = counter(keep)
        ladder.offer(Rung(plan.peak, plan.cost, keep))
    values = sum(joint.savable[k] for k in counter.reached)
    most = min(EXCHANGES // len(joint.nodes), EXCHANGES_PER_VALUE * values)
    Exchange(counter, ladder).run(most)
    return ladder


def _dropping(
    counter: PlanCounter, policy: Collection[int]
) -> Iterator[frozenset[int]]:
    """Plans that save one value less each, the one whose bytes cost least to miss.

    A step changes little of what the others would cost, so those are counted anew only
    when they come first (lazy greedy, Minoux 1978).
    """
    joint, keep, now = counter.joint, set(policy), counter.repeated(policy)
    heap = [(-inf, node) for node in sorted(keep) if joint.pure[node]]
    while heap:
        _, node = heapq.heappop(heap)
        cost = counter.repeated(keep - {node})
        price = (cost - now) / joint.bytes_of(node)
        if heap and price > heap[0][0]:
            heapq.heappush(heap, (price, node))
        else:
            now = cost
            keep.remove(node)
            yield frozenset(keep)


def _prices(counter: PlanCounter) -> list[float]:
    """Prices of a byte at which something changes: what products cost for theirs."""
    joint = counter.joint
    worth = sorted(
        joint.cost[k] / joint.bytes_of(k) for k in counter.again if joint.flops[k]
    )
    marks = {worth[len(worth) * q // 4] for q in range(4)} if worth else set()
    return [0.5, 2.0, *sorted(factor * m for m in marks for factor in (0.9, 1.1))]
