"""Flax NNX objects among the arguments: what a call changes in them is changed, once.

An NNX module holds its state (statistics, counters, random streams), and a call changes
it. Traced as a pytree the module inside is another one, whose new state would be lost.
So the objects are split into arrays, merged inside what is traced, and split once more:
their new state is among the results, as under Flax's own `nnx.remat` and `nnx.jit`.
Flax is not imported here: whoever passes a module has done that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from inspect import ismethod
from typing import Any

import jax

from retape.engines.jaxpr.intake._read_state import MadeAround

Mark = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What is done to a function of arrays."""

TAG = "retape.jax.checkpoint"


def is_nnx(value: Any) -> bool:
    """A Flax NNX object: a module, `nnx.Rngs`, a `Variable`."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Pytree | nnx.Variable)


def has_nnx(tree: Any) -> bool:
    """An NNX object anywhere in a pytree: a call may change it."""
    if "flax.nnx" not in sys.modules:
        return False
    return any(map(is_nnx, jax.tree.leaves(tree, is_leaf=is_nnx)))


def with_module(
    fun: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function and its arguments; a module that it is, or is of, is the first one."""
    if ismethod(fun) and is_nnx(fun.__self__):
        return fun.__func__, (fun.__self__, *args)
    return (call_layer, (fun, *args)) if is_nnx(fun) else (fun, args)


def call_layer(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """The layer's value."""
    return layer(*args, **kwargs)


def call_nnx(
    function: Callable[..., Any],
    mark: Mark,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call with NNX objects among the arguments, which the call may change.

    Args:
        function: What is called.
        mark: What is done to the function of arrays alone.
        args: Its arguments.
        kwargs: Those that are passed by name.
    """
    nnx = sys.modules["flax.nnx"]
    run = _OfArrays(function)

    @nnx.update_context(TAG)
    def lifted() -> Any:
        pure = nnx.to_tree((args, kwargs), ctxtag=TAG)
        after = mark(run)(pure)
        return nnx.from_tree(after, ctxtag=TAG, is_inner=False)[1]

    return lifted()


@dataclass(frozen=True, eq=False)
class _OfArrays(MadeAround):
    """A function of NNX objects, of their arrays alone."""

    function: Callable[..., Any]

    def __call__(self, pure: Any) -> Any:
        nnx = sys.modules["flax.nnx"]
        inside = nnx.from_tree(pure, ctxtag=TAG, is_inner=True)
        out = self.function(*inside[0], **inside[1])
        # Arrays among the arguments cannot have changed.
        objects = nnx.extract.clear_non_graph_nodes(inside)
        return nnx.to_tree((objects, out), ctxtag=TAG)
