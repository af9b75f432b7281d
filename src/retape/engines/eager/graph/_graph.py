"""A graph of nodes with marked checkpoints: the C++ engine's module, mended.

A `Graph` computes as it is built. Each node keeps its value, unless it was let go by
`Graph.release`; a node that was *marked* is a checkpoint and keeps, if asked, what it
was computed from. Random state, and buffers that an operation overwrites, are saved and
put back; saved inputs are tensors without history; a lock at each node makes it safe to
call from several threads.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from retape._arguments import whole
from retape._errors import PlanError, UnsupportedError
from retape.engines.eager._torch_compile import compiled_code_runs_eagerly
from retape.engines.eager._wrapper_tensors import writes_of
from retape.engines.eager.graph._node import (
    Before,
    CheckpointOptions,
    Node,
    as_before,
    check_in_place,
    node_name,
    recomputed,
    topological_order,
)

_log = logging.getLogger("retape.torch")


class Graph:
    """Nodes in the order in which they were computed.

    Examples:
        >>> graph = Graph()
        >>> x = graph.leaf(torch.ones(2))
        >>> y = graph.apply(torch.exp, x)
        >>> graph.release(y); y.value is None
        True
        >>> graph.recompute(y).tolist() == torch.ones(2).exp().tolist()
        True
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._lock = threading.RLock()

    def leaf(self, value: Tensor) -> Node:
        """A node that is given, not computed. It is never let go.

        Raises:
            PlanError: If it is no tensor.
        """
        if not isinstance(value, Tensor):
            raise PlanError(
                f"A leaf is given as a tensor, and `{value!r}` is none. Make one of it."
            )
        return self._add(Node(None, (), value, 0, _version=writes_of(value)))

    def apply(self, op: Callable[..., Tensor], *parents: Node) -> Node:
        """Compute a node from others; missing values are recomputed first.

        Raises:
            PlanError: If a parent is a node of another graph, or the result no tensor.
            MachineError: If a parent is overwritten in place, by the operation or
                before.
        """
        for parent in parents:
            at = parent.index if isinstance(parent, Node) else len(self.nodes)
            if [parent] != self.nodes[at : at + 1]:
                raise PlanError(
                    f"A parent of type `{type(parent).__name__}` is no node of this "
                    "graph, so no backward would go through both. Compute all of them "
                    "in one graph."
                )
        inputs = [recomputed(parent) for parent in parents]
        with torch.no_grad(), compiled_code_runs_eagerly(), Before() as before:
            value = op(*inputs)
        if not isinstance(value, Tensor):
            raise PlanError(
                f"An operation returned a `{type(value).__name__}`, and a node has one "
                "tensor. Choose one of them in the operation."
            )
        for parent in parents:
            check_in_place(parent)
        # A state is only worth its five kilobytes if the operation drew from it.
        random = before.drawn()
        overwritten = tuple(before.overwritten.items())
        return self._add(
            Node(
                op, parents, value, 0, _random=random, _version=writes_of(value),
                _overwritten=overwritten,
            )
        )  # fmt: skip

    def release(self, *nodes: Node) -> None:
        """Let values go; leaves keep theirs."""
        for node in nodes:
            with node.lock:
                if node.op is not None:
                    check_in_place(node)
                    node.value = None

    def release_unmarked(self, keep: Iterable[Node] = ()) -> None:
        """Let go of every value that is neither marked nor in `keep`."""
        kept = {id(node) for node in keep}
        self.release(
            *(n for n in self.nodes if not n.is_checkpoint and id(n) not in kept)
        )

    def mark_checkpoint(self, node: Node, **options: Any) -> bool:
        """Make a node a checkpoint, whose value `release_unmarked` keeps.

        Args:
            node: The node.
            **options: What is kept with it, and what is allowed. `save_inputs` (by
                default True): what it was computed from, so that its own value can be
                computed again without looking further back. `detach_inputs` (True):
                tensors, not their histories, which would keep the graph above alive.
                `save_rng` (True): the random state that it had. `force` (False): mark
                it even if that cannot save memory, as at a leaf. `max_recompute_depth`
                (None): the longest chain of missing values that a recomputation may go
                back through. `verbose` (False): log what is marked and recomputed.

        Returns:
            Whether it was made one: a leaf is not, unless `force` says so.

        Raises:
            UnsupportedError: If its inputs are to be saved and are gone.
            PlanError: If the depth allows no recomputation, or an option is not known.

        Examples:
            >>> graph = Graph()
            >>> x = graph.leaf(torch.ones(2))
            >>> y = graph.apply(torch.exp, x)
            >>> z = graph.apply(torch.sin, y)
            >>> graph.mark_checkpoint(y), graph.mark_checkpoint(x)
            (True, False)
            >>> graph.release_unmarked(keep=[x])
            >>> y.value is None, z.value is None
            (False, True)
        """
        return _mark(node, CheckpointOptions.of(options))

    def auto_checkpoint_every_n(self, root: Node, n: int, **options: Any) -> list[Node]:
        """Mark every n-th computed node below `root`, in topological order.

        Args:
            root: The node at the end.
            n: The spacing, in nodes.
            **options: As in `mark_checkpoint`.

        Returns:
            The nodes that were marked.

        Raises:
            PlanError: If `n` is no integer of at least 1, or an option is not known.

        Examples:
            >>> graph = Graph()
            >>> node = graph.leaf(torch.ones(2))
            >>> for _ in range(9):
            ...     node = graph.apply(torch.sin, node)
            >>> [each.index for each in graph.auto_checkpoint_every_n(node, 3)]
            [3, 6, 9]
        """
        if whole("n", n) < 1:
            raise PlanError(
                f"`n={n}` is not a spacing; mark every n-th node with n >= 1."
            )
        made = CheckpointOptions.of(options)
        computed = [node for node in topological_order(root) if node.op is not None]
        return [node for node in computed[n - 1 :: n] if _mark(node, made)]

    def auto_checkpoint_by_depth(
        self, root: Node, depth: int, **options: Any
    ) -> list[Node]:
        """Mark the nodes that lie deeper than `depth`; a leaf lies at depth 0.

        Args:
            root: The node at the end.
            depth: The longest way from a leaf, in nodes, to one that is not marked.
            **options: As in `mark_checkpoint`.

        Returns:
            The nodes that were marked.

        Raises:
            PlanError: If `depth` is no integer or negative, or an option is not known.

        Examples:
            >>> graph = Graph()
            >>> node = graph.leaf(torch.ones(2))
            >>> for _ in range(4):
            ...     node = graph.apply(torch.sin, node)
            >>> [each.index for each in graph.auto_checkpoint_by_depth(node, 2)]
            [3, 4]
        """
        if whole("depth", depth) < 0:
            raise PlanError(f"`depth={depth}` is negative; leaves lie at depth 0.")
        made = CheckpointOptions.of(options)
        depths: dict[int, int] = {}
        deep: list[Node] = []
        for node in topological_order(root):
            below = [depths[id(parent)] + 1 for parent in node.parents]
            depths[id(node)] = max(below, default=0)
            if depths[id(node)] > depth and _mark(node, made):
                deep.append(node)
        return deep

    def recompute(self, node: Node, *, keep_between: bool = False) -> Tensor:
        """The value of a node, computed again if it is missing.

        Args:
            node: The node.
            keep_between: Let the nodes on the way keep what was recomputed. Otherwise
                such values are let go as soon as their last reader has run.

        Raises:
            MachineError: If the chain back is longer than the options allow, or a value
                that it needs was overwritten in place.

        Examples:
            >>> graph = Graph()
            >>> x = graph.leaf(torch.zeros(2))
            >>> y = graph.apply(torch.exp, x)
            >>> z = graph.apply(torch.neg, y)
            >>> graph.release(y, z)
            >>> graph.recompute(z).tolist(), y.value is None
            ([-1.0, -1.0], True)
        """
        return recomputed(node, keep_between=keep_between)

    def accept(self, node: Node) -> None:
        """Take an in-place change of a node's value as its value from now on.

        The node becomes a leaf in all but name: its new value cannot be computed from
        its parents, so it is kept. What was computed from the old one is let go, and
        computed again from the new one where it is asked for.

        Args:
            node: The node whose value was changed.

        Raises:
            PlanError: If it has no value.

        Examples:
            >>> graph = Graph()
            >>> y = graph.apply(torch.exp, graph.leaf(torch.zeros(2)))
            >>> _ = y.value.mul_(3)
            >>> graph.accept(y)
            >>> graph.recompute(y).tolist()
            [3.0, 3.0]
        """
        with node.lock:
            if node.value is None:
                raise PlanError(
                    f"Node `{node.index}` has no value that could be taken as its own: "
                    "it was let go. Accept the node that was overwritten."
                )
            node._version = writes_of(node.value)
            node.op, node.parents, node.saved_inputs = None, (), None
        changed = {node}
        for other in self.nodes[node.index + 1 :]:
            if not changed.isdisjoint(other.parents):
                changed.add(other)
                with other.lock:
                    other.value = other.saved_inputs = None

    def backward(
        self, root: Node, cotangent: Tensor | None = None
    ) -> dict[Node, Tensor]:
        """Cotangents of all leaves that take part, one node's tape at a time.

        Values are recomputed where they are missing and let go again behind. Parameters
        that an operation reads by itself get theirs in `grad`, as in any backward.

        Raises:
            MachineError: If a value that it needs was overwritten in place.
        """
        return _backward(self, root, cotangent)

    def _add(self, node: Node) -> Node:
        with self._lock:
            node.index = len(self.nodes)
            self.nodes.append(node)
        return node


def _mark(node: Node, options: CheckpointOptions) -> bool:
    with node.lock:
        if not options.force and node.op is None:
            return False
        inputs = _inputs_to_save(node, options)
        node.is_checkpoint, node.options = True, options
        if inputs is not None:
            node.saved_inputs = inputs
            node._saved_versions = tuple(writes_of(tensor) for tensor in inputs)
        if not options.save_rng:
            node._random = ()
    if options.verbose:
        _log.info("checkpoint at node %d (%s)", node.index, node_name(node))
    return True


def _inputs_to_save(
    node: Node, options: CheckpointOptions
) -> tuple[Tensor, ...] | None:
    if not options.save_inputs or node.op is None:
        return None
    values = [parent.value for parent in node.parents]
    inputs = tuple(value for value in values if value is not None)
    if len(inputs) < len(values):
        raise UnsupportedError(
            f"Node `{node.index}` cannot save its inputs, because they were let go. "
            "Mark nodes before `release`, or pass `save_inputs=False`."
        )
    return tuple(t.detach() for t in inputs) if options.detach_inputs else inputs


def _backward(graph: Graph, root: Node, cotangent: Tensor | None) -> dict[Node, Tensor]:
    order = topological_order(root)
    present = {node.index for node in order if node.value is not None}
    value = recomputed(root)
    cotangents = {
        root.index: torch.ones_like(value) if cotangent is None else cotangent
    }
    leaves: dict[Node, Tensor] = {}
    for node in reversed(order):
        arriving = cotangents.pop(node.index, None)
        if arriving is None:
            continue
        if node.op is None:
            leaves[node] = arriving
            continue
        for parent, part in zip(node.parents, _pull(node, arriving), strict=True):
            if part is not None:
                known = cotangents.get(parent.index)
                cotangents[parent.index] = part if known is None else known + part
        if node.index not in present:
            graph.release(node)
    return leaves


def _pull(node: Node, arriving: Tensor) -> Sequence[Tensor | None]:
    """Tape one node, and pull a cotangent through it."""
    op = node.op
    assert op is not None
    sources = [recomputed(p, keep_between=True) for p in node.parents]
    inputs = [t.detach().requires_grad_(_may_get_gradient(t)) for t in sources]
    with torch.enable_grad(), as_before(node):
        result = op(*inputs)
        if result.requires_grad:
            result.backward(arriving)
    return [tensor.grad for tensor in inputs]


def _may_get_gradient(tensor: Tensor) -> bool:
    number = tensor.is_floating_point() or tensor.is_complex()
    return number and not tensor.is_inference()
