"""The best plans of a graph for every budget at once: less memory, or less repeated.

One table gives all budgets their plans, so that a larger one never holds less and
never repeats more.
"""

import heapq
from collections.abc import Collection, Iterator
from itertools import chain, islice
from math import inf
from typing import Any

from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._improve import Exchange, Ladder, Rung
from retape.engines.eager.compiled._joint import Joint

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
    policies += [_cheapest(counter, price) for price in _prices(counter)]
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


def _cheapest(counter: PlanCounter, price: float) -> frozenset[int]:
    """The values to save if a byte costs as much as `price` units of computing.

    A value is saved, for its bytes times the price, or run again, for its cost; what
    runs again needs what it reads. The least sum over all choices is a minimal cut
    between "only in the forward" and "in the backward, too" (Chen et al. 2016 trade
    along one chain; the cut takes any graph). At price 0 nothing is run again; at a
    high one, all that can be.

    Args:
        counter: Counts plans of the graph.
        price: What a saved byte costs.
    """
    import networkx

    joint, reached = counter.joint, counter.reached
    flow: Any = networkx.DiGraph()
    flow.add_nodes_from(("forward", "backward"))
    for node in reached:
        inside, outside = (node, 0), (node, 1)
        weight = _weight(joint, node, price)
        flow.add_edge(inside, outside, capacity=weight)
        if not joint.given[node] and joint.pure[node]:
            flow.add_edge("forward", inside, capacity=float(counter.cost[node]))
            for source in joint.inputs[node]:
                flow.add_edge((source, 1), inside, capacity=inf)
        else:
            flow.add_edge("forward", inside, capacity=inf)
    for node in joint.needed:
        flow.add_edge((node, 1), "backward", capacity=inf)
    _, (early, _) = networkx.minimum_cut(flow, "forward", "backward")
    chosen = {n for n in reached if (n, 0) in early and (n, 1) not in early}
    owners = map(joint.owner, chosen)
    return frozenset(node for node in owners if not joint.given[node])


def _weight(joint: Joint, node: int, price: float) -> float:
    if joint.given[node]:
        return 0.0
    if not joint.savable[node]:
        return inf
    if joint.view[node]:
        return inf  # what it looks at is saved instead
    return price * sum(joint.nbytes[s] for s in joint.storages[node]) + 1e-9
