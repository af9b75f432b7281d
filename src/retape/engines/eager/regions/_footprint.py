"""The bytes that running a compiled graph takes, node by node, before it is compiled.

The compiler may fuse operators and take less; it takes no more. Where sizes change from
call to call they are formulas, which are worked out for the sizes of a call.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, fx

from retape.engines.eager.compiled._node_traits import (
    has_symbols,
    is_item,
    tensors,
    workspace,
)

Size = Any  # a number, or a formula of sympy
_STATE = "run_and_save_rng_state"
_STATE_BYTES = torch.default_generator.get_state().nbytes


@dataclass(frozen=True, slots=True)
class Footprint:
    """Storages that a graph makes, and what its kernels take beside.

    Attributes:
        born: The node that makes each storage.
        dies: The last node that reads each; of what is returned, the number of nodes.
        nbytes: Its bytes.
        kernels: For nodes that take bytes while they run, how many.
        nodes: The number of nodes.
    """

    born: tuple[int, ...]
    dies: tuple[int, ...]
    nbytes: tuple[Size, ...]
    kernels: Mapping[int, Size]
    nodes: int

    def peak(self, sizes: Mapping[Any, int]) -> int:
        """The most bytes at once."""
        change = [0] * (self.nodes + 2)
        for born, dies, size in zip(self.born, self.dies, self.nbytes, strict=True):
            number = number_of(size, sizes)
            change[born] += number
            change[dies + 1] -= number
        live = most = 0
        for node in range(self.nodes):
            live += change[node]
            most = max(most, live + number_of(self.kernels.get(node, 0), sizes))
        return most

    def returned(self, sizes: Mapping[Any, int]) -> int:
        """The bytes of what is returned and was made here."""
        pairs = zip(self.dies, self.nbytes, strict=True)
        return sum(number_of(size, sizes) for dies, size in pairs if dies == self.nodes)

    def unknown(self, known: Collection[Any]) -> bool:
        """Tell whether a size depends on more than the sizes that are arguments."""
        every = [*self.nbytes, *self.kernels.values()]
        formulas = (size for size in every if size.__class__ is not int)
        return any(not size.free_symbols <= set(known) for size in formulas)


def footprint(graph: fx.Graph) -> Footprint:
    """Read the footprint off a graph of operators without side effects."""
    nodes = [each for each in graph.nodes if each.op != "output"]
    place: dict[int, int] = {}
    born: list[int] = []
    nbytes: list[Size] = []
    given: set[int] = set()
    dies: list[int] = []
    kernels: dict[int, Size] = {}
    for index, node in enumerate(nodes):
        is_given = node.op != "call_function"
        for tensor in tensors(node):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if is_given:
                given.add(key)
            elif key not in place and key not in given:
                place[key] = len(born)
                born.append(index)
                dies.append(index)
                state = _STATE_BYTES if _makes_state(node) else None
                nbytes.append(state or _formula(storage.nbytes()))
        for read in (node, *node.all_input_nodes):
            for tensor in tensors(read):
                number = place.get(tensor.untyped_storage()._cdata)
                if number is not None:
                    dies[number] = index
        if not is_given and not is_item(node):
            if (taken := _kernel(node)) != 0:
                kernels[index] = taken
    for node in graph.output_node().all_input_nodes:
        for tensor in tensors(node):
            number = place.get(tensor.untyped_storage()._cdata)
            if number is not None:
                dies[number] = len(nodes)
    return Footprint(tuple(born), tuple(dies), tuple(nbytes), kernels, len(nodes))


def number_of(size: Size, sizes: Mapping[Any, int]) -> int:
    """A size as a number."""
    if size.__class__ is int:
        return size
    return int(size.xreplace(sizes))


def _makes_state(node: fx.Node) -> bool:
    """Tell whether a node gives the state of a generator, whose size is a riddle."""
    found = [node.target, *(each.target for each in node.all_input_nodes)]
    return _STATE in map(str, found) and any(
        each.dtype is torch.uint8 for each in tensors(node)
    )


def _kernel(node: fx.Node) -> Size:
    if any(has_symbols(each) for each in (node, *node.all_input_nodes)):
        if "convolution" not in str(node.target):
            return 0
        every = [node, *node.all_input_nodes]
        return sum(_formula(t.nbytes) for each in every for t in tensors(each))
    return workspace(node)


def _formula(size: int | SymInt) -> Size:
    return size.node.expr if isinstance(size, SymInt) else int(size)
