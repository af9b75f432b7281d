"""Flax among the arguments: what a call changes in its modules is changed, once.

An NNX module holds its state (statistics, counters, random streams), and a call changes
it. Traced as a pytree the module inside is another one, whose new state would be lost.
So the objects are split into arrays, merged inside what is traced, and split once more:
their new state is among the results, as under Flax's own `nnx.remat` and `nnx.jit`.

Of a Linen module the function of a call is lifted to one of arrays, as Flax lifts JAX's
transformations: a module's arrays go in beside the arguments, and what the call changes
comes out beside the result. Its own `remat` lifts `jax.checkpoint`; here any mark is
lifted in the same way, so all that Flax promises holds: every variable that the call
changes is changed, once.

Flax is not imported here: whoever passes a module has done that.
"""

from __future__ import annotations

import copy
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
