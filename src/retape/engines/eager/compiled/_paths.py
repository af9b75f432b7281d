"""From one plan to the next, one value less at a time.

Each step drops the value whose bytes cost least to do without. A step changes little of
what the others would cost, so those are counted anew only when they come first (lazy
greedy, Minoux 1978).
"""

import heapq
from collections.abc import Callable, Collection, Iterator

from retape.engines.eager.compiled._closure import bytes_of, closure
from retape.engines.eager.compiled._joint import Joint


def dropping(
    joint: Joint, start: Collection[int], free: Collection[int]
) -> Iterator[frozenset[int]]:
    """Plans that save one value less each, until nothing is saved that need not be."""
    keep = set(start)
    now = repeated(joint, keep, free)

    def price(node: int) -> tuple[float, int]:
        cost = repeated(joint, keep - {node}, free)
        return (cost - now) / bytes_of(joint, node), cost

    for node, cost in _in_order([n for n in keep if joint.pure[n]], price):
        now = cost
        keep.remove(node)
        yield frozenset(keep)


def repeated(joint: Joint, keep: Collection[int], free: Collection[int]) -> int:
    """What is run again if these values are saved."""
    again = closure(joint, joint.needed, keep).again
    return sum(joint.cost[k] for k in again if joint.made[k] and k not in free)


def _in_order(
    nodes: Collection[int], price: Callable[[int], tuple[float, int]]
) -> Iterator[tuple[int, int]]:
    """Nodes, the best first, and the cost that each leads to."""
    heap = [(price(node)[0], node) for node in nodes]
    heapq.heapify(heap)
    while heap:
        _, node = heapq.heappop(heap)
        worth, cost = price(node)
        if heap and worth > heap[0][0]:
            heapq.heappush(heap, (worth, node))
        else:
            yield node, cost
