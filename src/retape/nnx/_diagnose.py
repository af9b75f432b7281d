"""Diagnosis of a failed call of `remat_scan`.

A call that works pays for nothing here but a note of the carry's types. A call that
fails is looked at again, in the words of its own arguments; an error of the layer's
own is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any

import jax
from flax import linen, nnx
from flax.errors import ModifyScopeVariableError
from flax.nnx import bridge

from retape._errors import PlanError, UnsupportedError
from retape.nnx._paths import (
    Types,
    carry_in,
    carry_out,
    is_axis,
    paired,
    place,
    scanned,
    types,
    unknown_kinds,
)


@dataclass(slots=True)
class Watched:
    """A layer function that notes what the last call of it took and gave back."""

    f: Callable[..., Any]
    in_axes: Any
    out_axes: Any
    before: Types | None = None
    after: Types | None = None
    inner: BaseException | None = None
    unknown: list[str] = field(default_factory=list[str])

    def wrapped(self) -> Callable[..., Any]:
        """The function to hand to `nnx.scan`."""

        @wraps(self.f)
        def f(*args: Any, **kwargs: Any) -> Any:
            self.before = self.after = None
            self.before = types(carry_in(self.in_axes, args))
            try:
                out = self.f(*args, **kwargs)
            except BaseException as error:
                self.inner = error
                raise
            self.after = types(carry_out(self.out_axes, out))
            self.unknown = list(unknown_kinds(self.in_axes, args))
            return out

        return f


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
    watched: Watched,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    length: int | None,
) -> None:
    """Raise what is wrong with a call; return if it isn't the call that is wrong."""
    args = _in_order(watched.f, args, kwargs)
    if isinstance(error, ModifyScopeVariableError):
        _name_collections(args)
    _check_modules(watched.in_axes, args)
    if watched.inner is error:
        if isinstance(error, TypeError) and "not callable" in str(error):
            _check_lists(watched.in_axes, args)
        return
    _check_count(watched.in_axes, args)
    _check_lists(watched.in_axes, args)
    _check_initialised(args)
    _check_kinds(watched, args)
    _check_lengths(watched.in_axes, args, length)
    _check_carry(watched.before, watched.after)


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


def _check_count(in_axes: Any, args: tuple[Any, ...]) -> None:
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise PlanError(
            f"in_axes has {len(in_axes)} entries, and the call has {len(args)} "
            "arguments. Each argument has an axis, None, nnx.Carry or an "
            "nnx.StateAxes. Add the ones that are missing, or take out the others."
        )


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


def _name_collections(args: tuple[Any, ...]) -> None:
    """A bridged layer wrote where Linen does not let it: say where it may have."""
    for path, node in nnx.iter_graph(args):
        if isinstance(node, bridge.ToNNX):
            linen = type(node.to_nnx__module).__name__
            kinds = {type(leaf) for _, leaf in nnx.to_flat_state(nnx.split(node)[1])}
            names = sorted(
                nnx.variable_name_from_type(kind)
                for kind in kinds
                if not issubclass(kind, nnx.Param | nnx.RngState)
            )
            raise UnsupportedError(
                f"args{place(path)} is the Linen module {linen}, bridged by "
                f"nnx.bridge.ToNNX, and changes one of its collections {names}. The "
                "bridge carries a change only of collections that the call names. "
                f"Call the layer as layer(..., mutable={names})."
            )


def _check_kinds(watched: Watched, args: tuple[Any, ...]) -> None:
    unknown = list(unknown_kinds(watched.in_axes, args)) or watched.unknown
    if unknown:
        raise PlanError(
            f"in_axes says nothing about this state of a layer: {', '.join(unknown)}. "
            "State can be one for each layer (an axis), the same for all (None) or "
            "handed from layer to layer (nnx.Carry). Add its kind to the StateAxes, "
            "or `...: 0` for all other kinds."
        )


def _check_lengths(in_axes: Any, args: tuple[Any, ...], length: int | None) -> None:
    found: dict[int, str] = {} if length is None else {length: "length="}
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
        found.setdefault(shape[axis], f"axis {axis} of {path}")
    if not found:
        raise PlanError(
            "Nothing says how many layers there are: no argument is scanned along an "
            "axis. Pass length=."
        )
    if len(found) > 1:
        said = ", ".join(f"{size} by {where}" for size, where in found.items())
        raise PlanError(
            f"The number of layers is given differently: {said}. All arguments that "
            "are scanned have one length. Correct in_axes or length=, or make what has "
            "no axis for the layers with nnx.vmap."
        )


def _is_stream(path: str, args: tuple[Any, ...]) -> bool:
    """Tell whether what is at a path is part of a random stream."""
    streams = nnx.filter_state(nnx.split(args)[1], nnx.RngState)
    return path in {f"args{place(where)}" for where, _ in nnx.to_flat_state(streams)}


def _check_carry(before: Types | None, after: Types | None) -> None:
    if before is None or after is None:
        return
    if before.keys() != after.keys():
        raise UnsupportedError(
            f"The carry changes its structure: it comes in as {_listed(before)} and "
            f"goes out as {_listed(after)}. The output of a layer is the input of the "
            "next. Give back what was taken, in the same structure."
        )
    changed = [
        f"{path} comes in as {before[path]} and goes out as {after[path]}"
        for path in before
        if before[path] != after[path]
    ]
    if changed:
        raise UnsupportedError(
            f"The carry changes its type: {'; '.join(changed)}. The output of a layer "
            "is the input of the next. Start with the type of the output, or convert "
            "at the end of the layer with .astype or .reshape."
        )


def _listed(types: Types) -> str:
    if not types:
        return "nothing"
    return "(" + ", ".join(f"{path}: {kind}" for path, kind in types.items()) + ")"
