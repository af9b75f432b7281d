"""The compiler's joint graph of forward and backward, as lists over its nodes.

Numbers instead of nodes make a plan cheap to try: the peak of a graph of two thousand
nodes takes milliseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, fx

from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager.compiled._node_traits import (
    aliases,
    flops,
    has_symbols,
    is_forced,
    is_item,
    is_pure,
    tensors,
    traffic,
    workspace,
)


@dataclass(frozen=True)
class Joint:
    """The joint graph in its own order, the output left out.

    Attributes:
        nodes: The nodes.
        inputs: Positions of the nodes that each reads.
        storages: The storages of each node's tensors.
        made: Those of them that the node itself makes.
        nbytes: Bytes of each storage; 0 for what was there before.
        workspace: Bytes that each takes for itself while it runs.
        backward: Whether a node depends on a cotangent.
        given: Whether it is there without running anything.
        view: Whether it shares the storage of what it reads, so that it costs nothing
            to run again, and saving it saves all of that.
        savable: Whether the forward can hand it to the backward.
        pure: Whether it gives the same again.
        flops: Floating-point operations of each node of the forward.
        cost: What running a node of the forward again costs.
        needed: Nodes of the forward that the backward reads, in order.
        outputs: Nodes that the forward returns.
        gradients: Nodes that the backward returns.
        first: The first node that reads a cotangent.
    """

    nodes: Sequence[fx.Node]
    inputs: Sequence[Sequence[int]]
    storages: Sequence[Sequence[int]]
    made: Sequence[Sequence[int]]
    nbytes: Sequence[int]
    workspace: Sequence[int]
    backward: Sequence[bool]
    given: Sequence[bool]
    view: Sequence[bool]
    savable: Sequence[bool]
    pure: Sequence[bool]
    flops: Sequence[int]
    cost: Sequence[int]
    needed: Sequence[int]
    outputs: Sequence[int]
    gradients: Sequence[int]
    first: int

    def runs_again(self, node: int) -> bool:
        """Tell whether the backward may run a node again, unless its value is saved."""
        return self.pure[node] and not self.given[node]

    def is_lost(self, node: int) -> bool:
        """Tell whether the backward can come by its value in no way."""
        return not (self.given[node] or self.pure[node] or self.savable[node])

    @cached_property
    def direct(self) -> frozenset[int]:
        """The values that the backward reads, views replaced by what they look at."""
        found = {self.owner(node) for node in self.needed}
        return frozenset(each for each in found if not self.given[each])

    def owner(self, node: int) -> int:
        """The node that makes the storage of a view."""
        while self.view[node] and self.inputs[node] and self.pure[node]:
            node = self.inputs[node][0]
        return node

    def bytes_of(self, node: int) -> int:
        """The bytes that saving a value takes; 1 at least, to divide by."""
        return max(1, sum(self.nbytes[s] for s in self.storages[node]))

    @cached_property
    def touched(self) -> list[tuple[int, ...]]:
        """The storages that each node reads or makes, those with bytes to count."""
        every = [
            {s for j in (k, *read) for s in self.storages[j] if self.nbytes[s]}
            for k, read in enumerate(self.inputs)
        ]
        return [tuple(each) for each in every]


def read_joint(
    graph: fx.Graph,
    cotangents: Iterable[fx.Node],
    inputs: Iterable[fx.Node],
    outputs: Iterable[Any],
    gradients: Iterable[Any],
    overwritten: frozenset[str] = frozenset(),
) -> Joint:
    """Read a joint graph.

    Args:
        graph: The graph.
        cotangents: The nodes that depend on a cotangent, cotangents included.
        inputs: The inputs of the forward.
        outputs: What the forward returns.
        gradients: What the backward returns.
        overwritten: Names of inputs that the forward overwrites.

    Raises:
        UnsupportedError: If a size is not known.
    """
    nodes = [each for each in graph.nodes if each.op != "output"]
    for node in nodes:
        if has_symbols(node):
            raise UnsupportedError(
                f"`{node.name}` of the compiled graph has a size that is not known "
                "when it is compiled, so no bytes can be promised. Pass "
                "`dynamic=False` to `torch.compile`: each shape has its own plan then."
            )
    place = {node: k for k, node in enumerate(nodes)}
    late, at_start = set(cotangents), set(inputs)
    read = [[place[each] for each in node.all_input_nodes] for node in nodes]
    storages, made, nbytes = _storages(nodes, read, at_start)
    backward = [node in late for node in nodes]
    pure = _pure(nodes, read, overwritten)
    ends = [place[each] for each in gradients if isinstance(each, fx.Node)]
    needed = {j for k, late in enumerate(backward) if late for j in read[k]}
    needed.update(ends)
    readers = (
        k
        for k, node in enumerate(nodes)
        if any(nodes[j].op == "placeholder" and backward[j] for j in read[k])
    )
    counts = [0 if late else flops(n) for n, late in zip(nodes, backward, strict=True)]
    moved = [
        0 if is_item(n) or not own else traffic(n)
        for n, own in zip(nodes, made, strict=True)
    ]
    return Joint(
        nodes=nodes,
        inputs=read,
        storages=storages,
        made=made,
        nbytes=nbytes,
        workspace=[workspace(node) for node in nodes],
        backward=backward,
        given=[node in at_start or node.op == "get_attr" for node in nodes],
        view=[
            node.op == "call_function" and not own and not is_item(node)
            for node, own in zip(nodes, made, strict=True)
        ],
        savable=[
            isinstance(node.meta.get("val"), Tensor) and not is_forced(node)
            for node in nodes
        ],
        pure=pure,
        flops=counts,
        # A product of matrices does tens of operations for each byte, so it weighs
        # more than what only moves bytes, which a compiler mostly fuses.
        cost=[a + b for a, b in zip(counts, moved, strict=True)],
        needed=sorted(k for k in needed if not backward[k]),
        outputs=[place[each] for each in outputs if isinstance(each, fx.Node)],
        gradients=ends,
        first=next(readers, len(nodes)),
    )


def _storages(
    nodes: Sequence[fx.Node], read: Sequence[Sequence[int]], given: set[fx.Node]
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """The storages of each node, those that it makes, and the bytes of each storage."""
    numbers: dict[int, int] = {}
    nbytes: list[int] = []
    storages: list[list[int]] = []
    made: list[list[int]] = []
    for node, sources in zip(nodes, read, strict=True):
        storages.append([])
        made.append([])
        if sources and aliases(node):
            # A pass over the graph may have given a view values of their own.
            storages[-1] += storages[sources[0]]
            continue
        for tensor in tensors(node):
            storage = tensor.untyped_storage()
            number = numbers.setdefault(storage._cdata, len(nbytes))
            if number == len(nbytes):
                nbytes.append(0 if node in given else storage.nbytes())
                made[-1].append(number)
            if number not in storages[-1]:
                storages[-1].append(number)
    return storages, made, nbytes


def _pure(
    nodes: Sequence[fx.Node],
    read: Sequence[Sequence[int]],
    overwritten: frozenset[str],
) -> list[bool]:
    """Whether each node, run in the backward, gives what it gave in the forward."""
    pure: list[bool] = []
    changed: list[bool] = []
    for node, sources in zip(nodes, read, strict=True):
        # What was overwritten is lost, and with it all views of it.
        lost = node.name in overwritten or (
            aliases(node) and any(changed[j] for j in sources[:1])
        )
        changed.append(lost)
        same = is_forced(node) or (
            is_pure(node) and not any(changed[j] for j in sources)
        )
        if is_item(node):
            same = same and pure[sources[0]]
        pure.append(same and not lost)
    return pure
