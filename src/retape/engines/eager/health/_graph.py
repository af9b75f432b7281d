"""Autograd's graph as a list: the operators that have a derivative, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

Grads = Sequence[Tensor | None]

_FUNCTIONS: Any = vars(torch._C)["_functions"]


def operators(value: Tensor) -> tuple[list[Any], list[Tensor]]:
    """The nodes that lead to a value, first one first, and the leaves that it is of.

    Autograd numbers nodes as they are made, and goes back by those numbers.
    """
    seen, found, leaves = {value.grad_fn}, list[Any](), list[Tensor]()
    waiting = [value.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if is_of_leaf(node):
            leaves.append(node.variable)
            continue
        found.append(node)
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                waiting.append(before)
    found.sort(key=number)
    return found, leaves


def is_of_leaf(node: Any) -> bool:
    """Tell whether a node adds to the gradient of a leaf."""
    # Not by `variable`: a function of the user's may keep something of that name.
    return type(node) is _FUNCTIONS.AccumulateGrad


def number(node: Any) -> int:
    """The place of a node in the order in which autograd made them."""
    return node._sequence_nr()


def sizes(grads: Iterable[Tensor | None]) -> list[Tensor]:
    """The least and the largest number of each tensor, on its device: nobody waits."""
    counted = (g.detach() for g in grads if g is not None and _counts(g))
    return [size for grad in counted for size in _extremes(grad)]


def largest(found: Iterable[Tensor]) -> float:
    """The largest magnitude among some sizes; infinity if one is not finite."""
    most = 0.0
    for each in found:
        size = abs(float(each))
        if not isfinite(size):
            return inf
        most = max(most, size)
    return most


def watch(nodes: Sequence[Any], per: int) -> list[list[Any]]:
    """Note how large cotangents of every `per`-th operator's results are.

    Returns:
        Pairs of the least and the largest number, to be filled by a backward.
    """
    rows: list[list[Any]] = [[] for _ in range(0, len(nodes), per)]

    def note(row: list[Any]) -> Callable[[Any], None]:
        def hook(grads: Any) -> None:
            # Whether they are large is asked afterwards: nobody waits for a device.
            row.append(sizes(grads))

        return hook

    for row, node in zip(rows, nodes[::per], strict=True):
        node.register_prehook(note(row))
    return rows


def _counts(grad: Tensor) -> bool:
    return grad.numel() > 0 and (grad.is_floating_point() or grad.is_complex())


def _extremes(grad: Tensor) -> Sequence[Tensor]:
    if grad.layout is not torch.strided:
        grad = grad.coalesce().values() if grad.is_sparse else grad.to_dense()
    # A vector norm of order infinity takes a hundred times as long on a CPU.
    return [grad.abs().max()] if grad.is_complex() else torch.aminmax(grad)
