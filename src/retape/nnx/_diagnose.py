"""Diagnosis of a failed call of `remat_scan`.

What JAX and Flax say of lengths, carries and kinds of state is left as it is, and so is
an error of the layer's own. A call of which they say nothing is looked at again, in the
words of its own arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from numbers import Integral
from typing import Any

import jax
from flax import linen, nnx
from flax.nnx import bridge

from retape._errors import PlanError, UnsupportedError


def check_function(f: Any) -> None:
    """Refuse what is no function.

    Raises:
        UnsupportedError: If `f` cannot be called.
    """
    if not callable(f):
        raise UnsupportedError(
            f"`remat_scan({f!r})`: this cannot be called, so it is not a layer. Pass "
            "a function of a carry and a layer, as in `remat_scan(lambda x, layer: "
            "layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)`."
        )


def check_options(in_axes: Any, out_axes: Any, metadata: Any) -> None:
    """Check the options that need no function.

    Raises:
        PlanError: If an axis is none, or an option is not what it has to be.
    """
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if isinstance(axes, list):
            raise PlanError(
                f"`{name}={axes}` is a list. Pass a tuple, with an entry for each "
                + ("argument." if name == "in_axes" else "result.")
            )
        for path, axis in jax.tree.leaves_with_path(axes, is_leaf=is_axis):
            if not is_axis(axis):
                where = name + jax.tree_util.keystr(path)
                raise PlanError(
                    f"`{where}={axis!r}` is not an axis. Pass a whole number, None "
                    "(the "
                    "same for all layers), nnx.Carry (handed from layer to layer), or "
                    "an nnx.StateAxes."
                )
    if not isinstance(metadata, Mapping):
        raise PlanError(
            f"`transform_metadata={metadata!r}` is not a mapping. Pass one, such as "
            '{nnx.PARTITION_NAME: "layers"}.'
        )


def explain(
    error: Exception,
    f: Callable[..., Any],
    in_axes: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Raise what is wrong with a call; return if it isn't the call that is wrong."""
    args = _in_order(f, args, kwargs)
    _check_modules(in_axes, args)
    if isinstance(error, TypeError) and "not callable" in str(error):
        _check_lists(in_axes, args)
    _check_initialised(args)
    if isinstance(error, IndexError):
        _check_axes(in_axes, args)


def _in_order(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """All arguments by their positions, as `nnx.scan` sees them."""
    try:
        bound = signature(f).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return args
    bound.apply_defaults()
    return bound.args


def _check_modules(in_axes: Any, args: tuple[Any, ...]) -> None:
    for path, _, value in paired(in_axes, args):
        if isinstance(value, linen.Module):
            raise UnsupportedError(
                f"{path} is the Linen module {type(value).__name__}, which holds no "
                "arrays. Bridge it, and initialise it where it is made: "
                "nnx.bridge.ToNNX(module, rngs=rngs).lazy_init(x)."
            )


def _check_lists(in_axes: Any, args: tuple[Any, ...]) -> None:
    """Refuse a list of modules in the place of one with stacked arrays."""
    for path, axes, value in paired(in_axes, args):
        if isinstance(axes, int | nnx.StateAxes) and _is_list_of_modules(value):
            raise UnsupportedError(
                f"{path} is a list of {len(value)} modules. A scan runs one module, "
                "each array of which has an axis more, over the layers. Make it with "
                "nnx.split_rngs and nnx.vmap around what makes one layer, or leave the "
                "list and mark each of its modules with retape.jax.Checkpointed."
            )


def _is_list_of_modules(value: Any) -> bool:
    if not isinstance(value, list | tuple | nnx.List):
        return False
    return len(value) > 0 and all(isinstance(v, nnx.Module) for v in value)


def check_variables(args: Any) -> None:
    """Refuse Variables that are changed in place: running a layer again would do so.

    Raises:
        UnsupportedError: With the path of the first such Variable.
    """
    for path, node in nnx.iter_graph(args):
        for option in ("ref", "hijax"):
            if isinstance(node, nnx.Variable) and getattr(node, option, False):
                raise UnsupportedError(
                    f"args{place(path)} is a Variable made with {option}=True, which "
                    "layers change in place: a layer that is run again would change it "
                    f"again. Make it with {option}=False. Its changes are then carried "
                    "out of the loop, and made once."
                )


def _check_initialised(args: tuple[Any, ...]) -> None:
    for path, node in nnx.iter_graph(args):
        if isinstance(node, bridge.ToNNX) and not nnx.split(node, nnx.Param, ...)[1]:
            linen = type(node.to_nnx__module).__name__
            raise UnsupportedError(
                f"args{place(path)} is the Linen module {linen}, bridged by "
                "nnx.bridge.ToNNX and without parameters yet. A scan "
                "cannot create the parameters of its layers. Initialise each layer "
                "where it is made, with "
                f"ToNNX({linen}(...), rngs=rngs).lazy_init(x)."
            )


def _check_axes(in_axes: Any, args: tuple[Any, ...]) -> None:
    for path, leaf, axis in scanned(in_axes, args):
        shape = jax.numpy.shape(leaf)
        if not -len(shape) <= axis < len(shape):
            make = (
                "split random streams with nnx.split_rngs(splits=...)"
                if _is_stream(path, args)
                else "make the layers with nnx.vmap"
            )
            raise PlanError(
                f"The argument at {path} has shape {shape} and so no axis {axis} to be "
                f"scanned along. Each layer needs a state of its own: {make}, or give "
                "this one None in in_axes (for all layers the same) or nnx.Carry "
                "(handed from layer to layer)."
            )


def _is_stream(path: str, args: tuple[Any, ...]) -> bool:
    """Tell whether what is at a path is part of a random stream."""
    streams = nnx.filter_state(nnx.split(args)[1], nnx.RngState)
    return path in {f"args{place(where)}" for where, _ in nnx.to_flat_state(streams)}


# Paths ---------------------------------------------------------------------------
#
# Of values among the arguments of a scan, as a user would write them:
# `args[1]['linear']['kernel']`.


def is_axis(axis: Any) -> bool:
    """Tell whether something says how an argument goes through the layers."""
    if axis is None or axis is nnx.Carry or isinstance(axis, nnx.StateAxes):
        return True
    return isinstance(axis, Integral) and not isinstance(axis, bool)


def leaves(tree: Any, name: str = "args") -> Iterator[tuple[str, Any]]:
    """Every array of a tree with modules in it, with a path to it."""
    state = nnx.split({"": tree})[1]
    for path, leaf in jax.tree.leaves_with_path(state):
        keys = [key for key in path[1:] if not _inside_variable(key)]
        yield name + jax.tree_util.keystr(tuple(keys)), leaf


def place(path: Sequence[Any]) -> str:
    """A path of keys as it is written."""
    return "".join(f"[{key!r}]" for key in path)


def _inside_variable(key: Any) -> bool:
    return isinstance(key, jax.tree_util.GetAttrKey)


def scanned(in_axes: Any, args: Any) -> Iterator[tuple[str, Any, int]]:
    """Every array that is scanned, with a path to it and its axis."""
    for path, axes, value in paired(in_axes, args):
        if isinstance(axes, nnx.StateAxes):
            states = nnx.split(value, *axes.filters)[1:]
            for state, axis in zip(states, axes.axes, strict=True):
                if isinstance(axis, Integral):
                    for where, leaf in jax.tree.leaves_with_path(state):
                        yield path + jax.tree_util.keystr(where), leaf, int(axis)
        elif isinstance(axes, Integral):
            for where, leaf in leaves(value, path):
                yield where, leaf, int(axes)


def paired(in_axes: Any, args: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each leaf of `in_axes` with the argument, or the part of one, that it is for."""
    for path, axes in jax.tree.leaves_with_path(in_axes, is_leaf=is_axis):
        value: Any = args
        try:
            for key in path:
                value = value[getattr(key, "idx", getattr(key, "key", None))]
        except LookupError:  # an axis too many
            continue
        yield "args" + jax.tree_util.keystr(path), axes, value
