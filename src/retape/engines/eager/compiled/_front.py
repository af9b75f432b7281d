"""The best plans of a graph for every budget at once: less memory, or less repeated.

One table gives all budgets their plans, so that a larger one never holds less and
never repeats more.
"""

from collections.abc import Collection, Iterable
from itertools import chain, islice

from retape.engines.eager.compiled._closure import bytes_of, closure, direct
from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._cut import cheapest
from retape.engines.eager.compiled._improve import Exchange
from retape.engines.eager.compiled._joint import Joint
from retape.engines.eager.compiled._ladder import Ladder, Rung
from retape.engines.eager.compiled._liveness import Account, account
from retape.engines.eager.compiled._paths import dropping

# Plans that are counted: fewer of a larger graph, whose count takes longer, and of one
# with few values to choose from. Both together take about three seconds at most.
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
    counter, ladder = PlanCounter(joint, free), Ladder()
    policies = [direct(joint), frozenset(usual), frozenset[int]()]
    policies += [cheapest(joint, price, free) for price in _prices(joint)]
    ways = (dropping(joint, policy, free) for policy in policies)
    for keep in islice(chain(policies, *ways), max(200, EFFORT // len(joint.nodes))):
        plan = counter(keep)
        ladder.offer(Rung(plan.peak, plan.cost, keep))
    values = sum(joint.savable[k] for k in counter.reached)
    most = min(EXCHANGES // len(joint.nodes), EXCHANGES_PER_VALUE * values)
    Exchange(counter, ladder).run(most)
    return pareto(account(joint, each.keep, free) for each in ladder)


def _prices(joint: Joint) -> list[float]:
    """Prices of a byte at which something changes: what products cost for theirs."""
    worth = sorted(
        joint.cost[k] / bytes_of(joint, k)
        for k in closure(joint, joint.needed, ()).again
        if joint.flops[k]
    )
    marks = {worth[len(worth) * q // 4] for q in range(4)} if worth else set()
    return [0.5, 2.0, *sorted(factor * m for m in marks for factor in (0.9, 1.1))]


def pareto(plans: Iterable[Account]) -> tuple[Account, ...]:
    """The plans that no other one beats, by peak and by cost."""
    best: list[Account] = []
    for plan in sorted(plans, key=lambda each: (each.peak, each.cost, each.saved)):
        if not best or plan.cost < best[-1].cost:
            best.append(plan)
    return tuple(best)
