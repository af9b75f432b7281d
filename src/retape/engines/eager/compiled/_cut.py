"""The cheapest choice for one price of memory: a minimal cut.

A value is saved, for its bytes times the price, or run again, for its cost; what runs
again needs what it reads. The least sum over all choices is a minimal cut between "only
in the forward" and "in the backward, too" (Chen et al. 2016 trade along one chain; the
cut takes any graph). As the price grows, less is saved.
"""

from math import inf
from typing import Any

from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._joint import Joint


def cheapest(counter: PlanCounter, price: float) -> frozenset[int]:
    """The values to save if a byte costs as much as `price` units of computing.

    At price 0 nothing is run again; at a high one, all that can be.

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
