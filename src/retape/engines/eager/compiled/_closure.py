"""The operators that run again in the backward, given what is saved."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager.compiled._joint import End, Joint


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
    end, inputs = joint.end, joint.inputs
    kept: set[int] = set()
    again: set[int] = set()
    todo = list(wanted)
    while todo:
        node = todo.pop()
        if node in again or node in kept:
            continue
        if end[node] is End.RUNS_AGAIN:
            if node in saved and joint.savable[node]:
                kept.add(node)
            else:
                again.add(node)
                todo += inputs[node]
        elif end[node] is End.NEITHER:
            raise UnsupportedError(
                f"`{joint.nodes[node].target}` of the compiled graph gives other "
                "values when it runs again, and its result cannot be saved. "
                "Compile without a budget."
            )
        else:
            kept.add(node)
    return Closure(frozenset(kept), tuple(sorted(again)))


def direct(joint: Joint) -> frozenset[int]:
    """The values that the backward reads, views replaced by what they look at."""
    found = {owner(joint, node) for node in joint.needed}
    return frozenset(each for each in found if not joint.given[each])


def owner(joint: Joint, node: int) -> int:
    """The node that makes the storage of a view."""
    while joint.view[node] and joint.inputs[node] and joint.pure[node]:
        node = joint.inputs[node][0]
    return node


def bytes_of(joint: Joint, node: int) -> int:
    """The bytes that saving a value takes; 1 at least, to divide by."""
    return max(1, sum(joint.nbytes[s] for s in joint.storages[node]))
