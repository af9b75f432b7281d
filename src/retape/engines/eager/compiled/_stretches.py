"""The forward in stretches: what saving and repeating within each of them takes.

Between two cuts of the forward a policy says which values are saved; the rest of the
stretch runs again when its backward comes, from the values that cross its first cut.
Bytes are estimates here: a plan that is put together from stretches is counted exactly
afterwards.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from retape.engines.eager.compiled._closure import closure, owner
from retape.engines.eager.compiled._joint import Joint
from retape.engines.eager.compiled._liveness import backward_order


@dataclass(frozen=True)
class Stretch:
    """One way through one stretch.

    Attributes:
        start, end: Numbers of its cuts.
        keep: Values to save in it, those that cross its end included.
        saved: Their bytes.
        extra: Bytes that its backward takes besides what is saved so far.
        cost: What it runs again.
    """

    start: int
    end: int
    keep: frozenset[int]
    saved: int
    extra: int
    cost: int


def cuts(joint: Joint, most: int) -> tuple[list[int], list[frozenset[int]]]:
    """Places at which little crosses, and what crosses at each.

    A place is a node after which the forward is cut; the first is before all nodes and
    the last after all of them.
    """
    run = [k for k in _reached(joint) if joint.savable[k] and not joint.view[k]]
    last: dict[int, int] = {}
    for k in _reached(joint):
        for source in joint.inputs[k]:
            last[owner(joint, source)] = k
    crossing: list[frozenset[int]] = []
    alive: set[int] = set()
    for k in run:
        alive = {each for each in (*alive, k) if last.get(each, -1) > k}
        crossing.append(frozenset(alive))
    size = [_bytes(joint, each) for each in crossing]
    # The least of each group of neighbours: where a block of a network ends.
    count = min(most, len(run))
    chosen: list[int] = []
    for part in range(count):
        low, high = part * len(run) // count, (part + 1) * len(run) // count
        if low < high:
            chosen.append(min(range(low, high), key=lambda k: (size[k], k)))
    inner = [k for k in chosen if k + 1 < len(run)]
    places = [-1, *(run[k] for k in inner), len(joint.nodes)]
    return places, [frozenset(), *(crossing[k] for k in inner), frozenset()]


class Stretches:
    """All stretches between the cuts of a graph.

    Args:
        joint: The graph.
        policies: For each way, the values that it saves.
        free: Nodes that cost nothing to run again.
        most: Most cuts.
    """

    def __init__(
        self,
        joint: Joint,
        policies: Sequence[frozenset[int]],
        free: Collection[int],
        most: int,
    ) -> None:
        self.joint, self.policies, self.free = joint, policies, free
        self.places, self.crossing = cuts(joint, most)
        self._needed = sorted(joint.needed)
        self._window = _gradients_meanwhile(joint)

    @property
    def count(self) -> int:
        """The number of cuts."""
        return len(self.places)

    def ways(self, start: int, end: int) -> list[Stretch]:
        """The ways through the stretch between two cuts, none worse than another."""
        joint = self.joint
        low, high = self.places[start], self.places[end]
        needed = [k for k in self._needed if low < k <= high]
        entering, leaving = self.crossing[start], self.crossing[end]
        fresh = leaving - entering
        working = max((self._window[k] for k in needed), default=0)
        found: dict[frozenset[int], Stretch] = {}
        for policy in self.policies:
            plan = closure(joint, needed, entering | policy)
            own = {k for k in plan.saved if not joint.given[k]} - entering
            keep = frozenset(own | fresh)
            if keep in found:
                continue
            again = [k for k in plan.again if joint.made[k]]
            wanted = {owner(joint, k) for k in needed}
            stay = [k for k in plan.again if k in wanted]
            biggest = max((_bytes(joint, [k]) for k in again), default=0)
            saved = _bytes(joint, keep)
            held = _bytes(joint, own) + _bytes(joint, stay) + biggest + working
            cost = sum(joint.cost[k] for k in again if k not in self.free)
            found[keep] = Stretch(start, end, keep, saved, held, cost)
        return [
            each
            for each in found.values()
            if not any(_better(other, each) for other in found.values())
        ]


def _reached(joint: Joint) -> list[int]:
    """The nodes that run again, or are saved since they cannot, if all else does."""
    plan = closure(joint, joint.needed, ())
    return sorted({*plan.again, *(k for k in plan.saved if not joint.given[k])})


def _better(one: Stretch, other: Stretch) -> bool:
    mine = (one.saved, one.extra, one.cost)
    its = (other.saved, other.extra, other.cost)
    return mine != its and all(a <= b for a, b in zip(mine, its, strict=True))


def _bytes(joint: Joint, nodes: Collection[int]) -> int:
    return sum(joint.nbytes[s] for s in {s for k in nodes for s in joint.storages[k]})


def _gradients_meanwhile(joint: Joint) -> dict[int, int]:
    """For each value that the backward reads, what gradients take meanwhile."""
    plan = closure(joint, joint.needed, joint.needed)
    order = backward_order(joint, plan)
    last: dict[int, int] = {}
    uses: dict[int, list[int]] = {}
    for moment, k in enumerate(order):
        for source in (k, *joint.inputs[k]):
            if joint.backward[source]:
                for storage in joint.storages[source]:
                    last[storage] = moment
            else:
                uses.setdefault(source, []).append(moment)
    for k in joint.gradients:
        for storage in joint.storages[k]:
            last[storage] = len(order)
    alive: list[int] = []
    now = 0
    ends: dict[int, int] = {}
    for moment, k in enumerate(order):
        for storage in joint.made[k] if joint.backward[k] else ():
            now += joint.nbytes[storage]
            ends[last[storage]] = ends.get(last[storage], 0) + joint.nbytes[storage]
        alive.append(now)
        now -= ends.get(moment, 0)
    return {
        k: max((alive[m] for m in uses.get(k, ())), default=0) for k in joint.needed
    }
