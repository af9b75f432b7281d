"""Policies of rematerialisation: of one operation each, and of a whole function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from retape.engines.jaxpr.layers.remat._flat_program import Graph

Policy = Callable[..., Any]
"""What `jax.checkpoint` takes as a policy: an operation to whether it is saved."""


class Strategy(ABC):
    """A policy that needs to see all operations at once."""

    @abstractmethod
    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        """Evaluate the graph in this way."""

    def __call__(self, *_: Any, **__: Any) -> bool:
        """What `jax.checkpoint` itself would make of it: nothing is saved."""
        return False


def saves_products(prim: Any, *avals: Any, **params: Any) -> bool:
    """See `policies.selective`."""
    if prim.name == "dot_general":
        return not any(params["dimension_numbers"][1])
    return prim.name == "conv_general_dilated"
