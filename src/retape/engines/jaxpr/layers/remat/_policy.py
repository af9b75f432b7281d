"""Policies of rematerialisation: of one operation each, and of a whole function.

Among the first are those of names that `checkpoint_name` gave to values. A name that
nothing has keeps nothing. JAX says nothing about that; here a `RetapeWarning` names it,
beside the names that there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.extend import core

from retape._warn import warn
from retape.engines.jaxpr.jaxprs._rewrite import every_eqn
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


@dataclass(frozen=True)
class Names:
    """See `policies.names`."""

    save: tuple[str, ...]
    offload: tuple[str, ...]

    @cached_property
    def _theirs(self) -> Policy:
        if not self.offload:
            return jax.checkpoint_policies.save_only_these_names(*self.save)
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=list(self.save),
            names_which_can_be_offloaded=list(self.offload),
            offload_src="device",
            offload_dst="pinned_host",
        )

    def __call__(self, prim: Any, *avals: Any, **params: Any) -> Any:
        """What `jax.checkpoint` asks about an operation."""
        return self._theirs(prim, *avals, **params)


def check_names(policy: Any, jaxpr: core.Jaxpr, where: str) -> None:
    """Warn of names that no value of a program has.

    Args:
        policy: Any policy; only one of names is looked at.
        jaxpr: The program that it is for.
        where: What the program is, for the message.
    """
    if not isinstance(policy, Names):
        return
    # The operation's own name differs between releases; its parameter does not.
    named = (eqn for eqn in every_eqn(jaxpr.eqns) if is_named(eqn))
    there = sorted({str(eqn.params["name"]) for eqn in named})
    missing = [n for n in (*policy.save, *policy.offload) if n not in there]
    if missing:
        found = f"its names are {there}" if there else "it names no value"
        warn(
            f"`policies.names`: {where} has no value named {missing}, so nothing is "
            f"kept for that; {found}. Correct the name, or give it to a value inside "
            "by `jax.ad_checkpoint.checkpoint_name(value, name)`."
        )


def is_named(eqn: core.JaxprEqn) -> bool:
    """Whether an operation gives its value a name (`checkpoint_name`)."""
    return "name" in eqn.primitive.name.lower() and "name" in eqn.params
