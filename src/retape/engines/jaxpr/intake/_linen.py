"""Modules of Flax Linen: the function of a call is lifted to one of arrays, and marked.

Flax lifts JAX's transformations: a module's arrays go in beside the arguments, and
what the call changes comes out beside the result. Its own `remat` lifts
`jax.checkpoint`; here any mark is lifted in the same way, so all that Flax promises
holds: every variable that the call changes is changed, once. Flax is not imported here:
whoever passes a module has done that.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from inspect import ismethod
from typing import Any

import jax

from retape.engines.jaxpr.intake._nnx import Mark, call_layer, is_nnx


def is_linen(value: Any) -> bool:
    """A Flax Linen module."""
    linen = sys.modules.get("flax.linen")
    return linen is not None and isinstance(value, linen.Module)


def owner(layer: Any) -> tuple[Any, Callable[..., Any]]:
    """What has state, and the function of it: a method belongs to its module."""
    if ismethod(layer) and (is_nnx(layer.__self__) or is_linen(layer.__self__)):
        return layer.__self__, layer.__func__
    return layer, call_layer


def call_linen(
    function: Callable[..., Any],
    layer: Any,
    mark: Mark,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a Linen module inside another one."""
    transforms = sys.modules["flax.linen"].transforms
    lifted = transforms.lift_transform(_lifted, function, mark=mark)
    return lifted(layer, *args, **kwargs)


def _lifted(fn: Callable[..., Any], *, mark: Mark) -> Any:
    """`flax.core.lift.checkpoint`, of another mark."""

    def inner(
        scope_fn: Any, repack_fn: Any, variables: Any, rngs: Any, *args: Any, **kw: Any
    ) -> Any:
        before: list[Any] = []

        def run(variables: Any, rngs: Any, *args: Any, **kw: Any) -> Any:
            scope = scope_fn(variables, rngs)
            # It is traced again where it needs the value of a number. What it drew the
            # first time is then drawn once more: Flax counts in what the scopes share.
            counts = [each.rng_counters for each in jax.tree.leaves(scope)]
            before.extend(copy.deepcopy(counts[len(before) :]))
            for each, old in zip(counts, before, strict=True):
                _set_back(each, old)
            out = fn(scope, *args, **kw)
            return out, repack_fn(scope)

        return mark(run)(variables, rngs, *args, **kw)

    pack = sys.modules["flax.core.lift"].pack
    everything = (True,)
    return pack(
        inner, everything, everything, everything, name="remat", enable_kwargs=True
    )


def _set_back(counts: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Give counters the numbers that they had, in place."""
    for key in list(counts):
        if key not in before:
            del counts[key]
        elif isinstance(counts[key], dict):
            _set_back(counts[key], before[key])
        else:
            counts[key] = before[key]


def make_known(
    wrapper: type,
    layer: Any,
    held: Callable[[Any], Any],
    around: Callable[[Any, Any], Any],
) -> None:
    """Tell Flax that a wrapper of one of its modules may be a module's attribute.

    Args:
        wrapper: The class of wrappers.
        layer: What one of them is made for.
        held: From a wrapper to its module.
        around: From a wrapper and another module to a wrapper of that.
    """
    if is_nnx(layer):
        # Older releases have no registry, and take any pytree as an attribute.
        register = getattr(sys.modules["flax.nnx"], "register_data_type", None)
        if register is not None:
            register(wrapper)
    elif is_linen(layer):
        _make_known_to_linen(wrapper, held, around)


def _make_known_to_linen(wrapper: type, held: Any, around: Any) -> None:
    """Let Linen find the module in a wrapper, as it finds those in lists.

    Linen names it by the attribute and the key in the dictionary: `block_`. It takes
    the module back after naming it and before registering it, which is when the name
    is made that of the attribute: `block`.
    """

    def found(it: Any) -> dict[str, Any]:
        object.__setattr__(it, "_unnamed", held(it).name is None)
        return {"": held(it)}

    def named(it: Any, state: dict[str, Any]) -> Any:
        layer = state[""]
        if vars(it).get("_unnamed") and str(layer.name).endswith("_"):
            object.__setattr__(layer, "name", layer.name[:-1])
        return around(it, layer)

    register = sys.modules["flax.serialization"].register_serialization_state
    register(wrapper, found, named, override=True)
