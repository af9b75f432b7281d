"""The peak of a plan, counted quickly: what a search over thousands of plans needs.

One pass over the forward finds what runs again and before which node of the backward,
and arrays do the rest.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from retape._errors import UnsupportedError
from retape.engines.eager.analysis._columns import crossing
from retape.engines.eager.compiled._joint import Joint


class Count(NamedTuple):
    """What a plan holds and repeats.

    Attributes:
        peak: Most bytes alive in the forward or the backward.
        cost: What is run again.
        kept: Nodes that are saved or given.
        again: Nodes that run again, the last first.
        alive: For each storage, whether it is alive at the peak.
    """

    peak: int
    cost: int
    kept: list[int]
    again: list[int]
    alive: Any


class PlanCounter:
    """Counts plans of one graph.

    Args:
        joint: The graph.
        usual: What the compiler saves by itself. What it runs again for that costs
            nothing: it is fused with what reads it.

    Attributes:
        cost: By node, what running it again costs.
        reached: Nodes of the forward that the backward may ask for, the last first.
        again: Those of them that run again where nothing is saved by choice.
        counted: How many plans were counted.
    """

    def __init__(self, joint: Joint, usual: Collection[int]) -> None:
        self.joint = joint
        self.counted = 0
        self._choice = [*map(joint.runs_again, range(len(joint.nodes)))]
        reached = ancestors(joint, joint.needed, self._choice)
        self.reached = reached[::-1]
        self.again = [k for k in reached if self._choice[k]]
        self._lost = set(filter(joint.is_lost, reached))
        self._read_backward()
        self._read_storages()
        self.cost = [
            cost if made else 0
            for cost, made in zip(joint.cost, joint.made, strict=True)
        ]
        for k in self._close(usual)[1]:
            self.cost[k] = 0

    def __call__(self, keep: Collection[int]) -> Count:
        """Count the plan that saves these nodes if the backward needs them.

        Raises:
            UnsupportedError: If a value can be neither saved nor computed again.
        """
        self.counted += 1
        kept, again, anchor, cost = self._close(keep)
        saved = sorted(storages_of(self.joint, kept))
        late, peak_late = self._backward(saved, again, anchor)
        early, peak_early = self._forward(kept, saved)
        alive = late if peak_late >= peak_early else early
        return Count(max(peak_late, peak_early), cost, kept, again, alive)

    def repeated(self, keep: Collection[int]) -> int:
        """What running again costs if these values are saved."""
        return self._close(keep)[3]

    def _close(
        self, keep: Collection[int]
    ) -> tuple[list[int], list[int], list[int], int]:
        """What is saved, what runs again, before which node, and what that costs."""
        joint, inputs, savable = self.joint, self.joint.inputs, self.joint.savable
        anchor, wanted, cost = self._anchor.copy(), bytearray(len(joint.nodes)), 0
        for k in joint.needed:
            wanted[k] = 1
        kept, again = list[int](), list[int]()
        for k in self.reached:
            if not wanted[k]:
                continue
            if not self._choice[k] or (k in keep and savable[k]):
                kept.append(k)
                continue
            again.append(k)
            cost += self.cost[k]
            # One that stands among the nodes of the backward runs in its own place.
            here = anchor[k] = min(anchor[k], k) if k >= joint.first else anchor[k]
            for source in inputs[k]:
                wanted[source] = 1
                if here < anchor[source]:
                    anchor[source] = here
        if not self._lost.isdisjoint(kept):
            node = joint.nodes[min(self._lost.intersection(kept))]
            raise UnsupportedError(
                f"`{node.target}` of the compiled graph gives other values when it "
                "runs again, and its result cannot be saved. Compile without a budget."
            )
        return kept, again, anchor, cost

    def _backward(
        self, saved: list[int], again: list[int], anchor: list[int]
    ) -> tuple[Any, int]:
        """What is alive when the backward holds most, and how much that is."""
        size = len(self.joint.nodes)
        runs, places = self._runs_late.copy(), self._place_late.copy()
        if again:
            runs[again] = True
            more = np.array(again)
            places[more] = np.array([anchor[k] for k in again]) * size + more
        nodes = np.flatnonzero(runs)
        order = nodes[np.argsort(places[nodes])]
        before = saved + self._there_late
        return self._most(order, runs, before, self._stay_late)

    def _forward(self, kept: Iterable[int], saved: list[int]) -> tuple[Any, int]:
        """The same of the forward."""
        order = np.array(ancestors(self.joint, [*self.joint.outputs, *kept]), dtype=int)
        runs = np.zeros(len(self.joint.nodes), dtype=bool)
        runs[order] = True
        return self._most(order, runs, [], saved + self._stay_early)

    def _most(
        self, order: Any, runs: Any, before: list[int], stay: list[int]
    ) -> tuple[Any, int]:
        """Storages alive at the worst moment of nodes run in an order, and their bytes.

        Args:
            order: The nodes.
            runs: Whether each node is among them.
            before: Storages that are there at the start.
            stay: Storages that outlive the run.
        """
        end = len(order)
        if not end:
            return np.zeros(len(self._bytes), dtype=bool), 0
        moment = np.full(len(runs), -1)
        moment[order] = np.arange(end)
        last = np.full(len(self._bytes), -1)
        touching = runs[self._toucher]
        np.maximum.at(last, self._touched[touching], moment[self._toucher[touching]])
        last[stay] = end
        last[last < 0] = end
        first = np.where(self._maker >= 0, moment[self._maker], -1)
        there = first >= 0
        first[before] = 0
        there[before] = True
        held = crossing(first[there], last[there] + 1, self._bytes[there], end)
        held += self._workspace[order]
        worst = int(held.argmax())
        alive = there & (first <= worst) & (last >= worst)
        return alive, int(held[worst])

    def _read_backward(self) -> None:
        """Where the nodes that depend on a cotangent stand in the backward."""
        joint, size = self.joint, len(self.joint.nodes)
        late = [k for k in range(joint.first, size) if joint.backward[k]]
        run = {k for k in ancestors(joint, late) if joint.backward[k]}
        # By node, the first node of the backward that asks for it; none is the end.
        self._anchor = [2 * size] * size
        self._runs_late = np.zeros(size, dtype=bool)
        self._place_late = np.zeros(size, dtype=np.int64)
        for k in sorted(run, reverse=True):
            place = k if k >= joint.first else self._anchor[k]
            self._runs_late[k] = True
            self._place_late[k] = place * size + k
            for source in joint.inputs[k]:
                self._anchor[source] = min(self._anchor[source], place)

    def _read_storages(self) -> None:
        joint, size = self.joint, len(self.joint.nodes)
        pairs = [(k, s) for k in range(size) for s in joint.touched[k]]
        self._toucher, self._touched = np.array(pairs).reshape(-1, 2).T.copy()
        self._maker = np.full(len(joint.nbytes), -1)
        for k, made in enumerate(joint.made):
            self._maker[list(made)] = k
        self._bytes = np.array(joint.nbytes, dtype=np.int64)
        self._workspace = np.array(joint.workspace, dtype=np.int64)
        cotangents = [
            k
            for k, node in enumerate(joint.nodes)
            if joint.backward[k] and node.op == "placeholder"
        ]
        before = [*joint.outputs, *cotangents]
        self._there_late = sorted(storages_of(joint, before))
        self._stay_late = sorted(storages_of(joint, [*before, *joint.gradients]))
        self._stay_early = sorted(storages_of(joint, joint.outputs))


def storages_of(joint: Joint, nodes: Iterable[int]) -> set[int]:
    """The storages of all these nodes' tensors."""
    return {s for node in nodes for s in joint.storages[node]}


def ancestors(
    joint: Joint, ends: Iterable[int], through: Sequence[bool] | None = None
) -> list[int]:
    """These nodes and all that they are made from, in the order of the graph.

    Args:
        joint: The graph.
        ends: The nodes.
        through: By node, whether to look at what it is made from; of all if `None`.
    """
    found: set[int] = set()
    todo = list(ends)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            if through is None or through[node]:
                todo += joint.inputs[node]
    return sorted(found)
