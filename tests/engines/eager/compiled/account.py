"""A plan counted node by node, through both graphs: slow, and independent of ours."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from retape import UnsupportedError
from retape.engines.eager.compiled._count import ancestors, storages_of
from retape.engines.eager.compiled._joint import Joint


@dataclass(frozen=True)
class Closure:
    """All that a set of values needs.

    Attributes:
        saved: Nodes that have to be saved, and inputs that are read.
        again: Nodes that run again, in the order of the graph.
    """

    saved: frozenset[int]
    again: tuple[int, ...]


def closure(joint: Joint, wanted: Iterable[int], saved: Collection[int]) -> Closure:
    """Follow values back to what is saved, or given, or does not repeat.

    Args:
        joint: The graph.
        wanted: Nodes of the forward whose values are wanted.
        saved: Nodes that are saved if they are met.

    Raises:
        UnsupportedError: If a value can be neither saved nor computed again.
    """
    inputs = joint.inputs
    kept: set[int] = set()
    again: set[int] = set()
    todo = list(wanted)
    while todo:
        node = todo.pop()
        if node in again or node in kept:
            continue
        if joint.runs_again(node):
            if node in saved and joint.savable[node]:
                kept.add(node)
            else:
                again.add(node)
                todo += inputs[node]
        elif joint.is_lost(node):
            raise UnsupportedError(
                f"`{joint.nodes[node].target}` of the compiled graph gives other "
                "values when it runs again, and its result cannot be saved. "
                "Compile without a budget."
            )
        else:
            kept.add(node)
    return Closure(frozenset(kept), tuple(sorted(again)))


@dataclass(frozen=True)
class Account:
    """What a plan holds and repeats.

    Attributes:
        peak: Most bytes alive in the forward or the backward, beyond its inputs.
        cost: What is run again, as `Joint.cost` counts.
    """

    peak: int
    cost: int


def account(joint: Joint, saved: Collection[int], free: Collection[int]) -> Account:
    """Count what a plan takes.

    Args:
        joint: The graph.
        saved: Nodes that are saved if the backward needs them.
        free: Nodes that cost nothing to run again, since the compiler fuses them.

    Raises:
        UnsupportedError: If a value can be neither saved nor computed again.
    """
    plan = closure(joint, joint.needed, saved)
    run_again = [k for k in plan.again if joint.made[k] and k not in free]
    return Account(
        peak=max(forward_peak(joint, plan), backward_peak(joint, plan)),
        cost=sum(joint.cost[k] for k in run_again),
    )


def forward_peak(joint: Joint, plan: Closure) -> int:
    """Most bytes alive in the forward."""
    ends = [*joint.outputs, *plan.saved]
    order = ancestors(joint, ends)
    return sweep(joint, order, ends, ())


def backward_peak(joint: Joint, plan: Closure) -> int:
    """Most bytes alive in the backward, with what the forward returned."""
    cotangents = [
        k
        for k, node in enumerate(joint.nodes)
        if joint.backward[k] and node.op == "placeholder"
    ]
    stays = [*joint.gradients, *joint.outputs, *cotangents]
    before = [*plan.saved, *joint.outputs, *cotangents]
    return sweep(joint, backward_order(joint, plan), stays, before)


def backward_order(joint: Joint, plan: Closure) -> list[int]:
    """The order in which the partitioner puts the backward.

    Nodes that depend on a cotangent come in their own order, and what is run again
    for one just before it.
    """
    again = set(plan.again)
    there = set(plan.saved)
    order: list[int] = []
    for k in range(joint.first, len(joint.nodes)):
        if not joint.backward[k] and k not in again:
            continue
        if there.issuperset(joint.inputs[k]):
            if k not in there:
                there.add(k)
                order.append(k)
            continue
        missing: set[int] = set()
        todo = [k]
        while todo:
            node = todo.pop()
            if node not in there and node not in missing:
                missing.add(node)
                todo += joint.inputs[node]
        order += sorted(missing)
        there |= missing
    return order


def sweep(
    joint: Joint,
    order: Sequence[int],
    stays: Iterable[int],
    before: Iterable[int],
) -> int:
    """Most bytes alive while nodes are run in an order.

    Args:
        joint: The graph.
        order: The nodes.
        stays: Nodes whose storages outlive the run.
        before: Nodes whose storages are there at its start.
    """
    touched = joint.touched
    last: dict[int, int] = {}
    for moment, node in enumerate(order):
        for storage in touched[node]:
            last[storage] = moment
    for storage in storages_of(joint, stays):
        last[storage] = len(order)
    dying: list[list[int]] = [[] for _ in range(len(order) + 1)]
    for storage, moment in last.items():
        dying[moment].append(storage)
    alive = set(storages_of(joint, before))
    nbytes = joint.nbytes
    now = most = sum(nbytes[s] for s in alive)
    for moment, node in enumerate(order):
        for storage in joint.made[node]:
            if storage not in alive:
                alive.add(storage)
                now += nbytes[storage]
        most = max(most, now + joint.workspace[node])
        for storage in dying[moment]:
            if storage in alive:
                alive.remove(storage)
                now -= nbytes[storage]
    return most
