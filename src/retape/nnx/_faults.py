"""What is wrong with a call of `remat_scan`, found after it has failed.

A call that works pays for nothing here but a note of the carry's types. A call that
fails is looked at again, in the words of its own arguments; an error of the layer's
own is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import jax
from flax import nnx
from flax.errors import ModifyScopeVariableError
from flax.nnx import bridge

from .._errors import PlanError, UnsupportedError

Types = dict[str, str]
"""The type of each array of a carry, by the path to it."""


@dataclass(slots=True)
class Watched:
    """A layer function that notes what the last call of it took and gave back."""

    f: Callable[..., Any]
    in_axes: Any
    out_axes: Any
    before: Types = field(default_factory=dict[str, str])
    after: Types = field(default_factory=dict[str, str])
    inner: BaseException | None = None
    unknown: list[str] = field(default_factory=list[str])

    def wrapped(self) -> Callable[..., Any]:
        """The function to hand to `nnx.scan`."""

        @wraps(self.f)
        def f(*args: Any, **kwargs: Any) -> Any:
            self.before = self.after = {}
            self.before = _types(_carry_in(self.in_axes, args))
            try:
                out = self.f(*args, **kwargs)
            except BaseException as error:
                self.inner = error
                raise
            self.after = _types(_carry_out(self.out_axes, out))
            self.unknown = list(_unknown_kinds(self.in_axes, args))
            return out

        return f


def explain(
    error: Exception, watched: Watched, args: tuple[Any, ...], length: int | None
) -> None:
    """Raise what is wrong with a call; return if it isn't the call that is wrong."""
    if isinstance(error, ModifyScopeVariableError):
        _name_collections(args)
    if watched.inner is error:
        return
    _check_initialised(args)
    _check_kinds(watched, args)
    _check_lengths(watched.in_axes, args, length)
    _check_carry(watched.before, watched.after)


def check_variables(args: Any) -> None:
    """Refuse Variables that are changed in place: running a layer again would do so.

    Raises:
        UnsupportedError: With the path of the first such Variable.
    """
    for path, node in nnx.iter_graph(args):
        for option in ("ref", "hijax"):
            if isinstance(node, nnx.Variable) and getattr(node, option, False):
                raise UnsupportedError(
                    f"args{_place(path)} is a Variable made with {option}=True, which "
                    "layers change in place: a layer that is run again would change it "
                    f"again. Make it with {option}=False. Its changes are then carried "
                    "out of the loop, and made once."
                )


def _check_initialised(args: tuple[Any, ...]) -> None:
    for path, node in nnx.iter_graph(args):
        if isinstance(node, bridge.ToNNX) and not nnx.split(node, nnx.Param, ...)[1]:
            linen = type(node.to_nnx__module).__name__
            raise UnsupportedError(
                f"args{_place(path)} is the Linen module {linen}, bridged by "
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
                f"args{_place(path)} is the Linen module {linen}, bridged by "
                f"nnx.bridge.ToNNX, and changes one of its collections {names}. The "
                "bridge carries a change only of collections that the call names. "
                f"Call the layer as layer(..., mutable={names})."
            )


def _check_kinds(watched: Watched, args: tuple[Any, ...]) -> None:
    unknown = list(_unknown_kinds(watched.in_axes, args)) or watched.unknown
    if unknown:
        raise PlanError(
            f"in_axes says nothing about this state of a layer: {', '.join(unknown)}. "
            "State can be one for each layer (an axis), the same for all (None) or "
            "handed from layer to layer (nnx.Carry). Add its kind to the StateAxes, "
            "or `...: 0` for all other kinds."
        )


def _check_lengths(in_axes: Any, args: tuple[Any, ...], length: int | None) -> None:
    found: dict[int, str] = {} if length is None else {length: "length="}
    for path, leaf, axis in _scanned(in_axes, args):
        shape = jax.numpy.shape(leaf)
        if not -len(shape) <= axis < len(shape):
            raise PlanError(
                f"The argument at {path} has shape {shape} and so no axis {axis} to be "
                "scanned along. Each layer needs a state of its own: make the layers "
                "with nnx.vmap, or give this one None in in_axes (for all layers the "
                "same) or nnx.Carry (handed from layer to layer)."
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
            "are scanned have one length. Correct in_axes, or length=."
        )


def _check_carry(before: Types, after: Types) -> None:
    if not before or not after:
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
    return "(" + ", ".join(f"{path}: {kind}" for path, kind in types.items()) + ")"


def _carry_in(in_axes: Any, args: tuple[Any, ...]) -> Any:
    if in_axes is nnx.Carry:
        return args[0] if args else None
    return _at_carry(in_axes, args)


def _carry_out(out_axes: Any, out: Any) -> Any:
    return out if out_axes is nnx.Carry else _at_carry(out_axes, out)


def _at_carry(axes: Any, values: Any) -> Any:
    """What stands where `nnx.Carry` stands."""
    if isinstance(axes, tuple) and isinstance(values, tuple):
        for axis, value in zip(axes, values, strict=False):
            if axis is nnx.Carry:
                return value
    return None


def _types(tree: Any) -> Types:
    return {
        f"carry{path}": _type(leaf)
        for path, leaf in _leaves(tree, name="")
        if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | float | int)
    }


def _type(leaf: Any) -> str:
    # A weak type (a Python number's) becomes the type of the output.
    return jax.typeof(leaf).str_short().removeprefix("~")


def _leaves(tree: Any, name: str = "args") -> Iterator[tuple[str, Any]]:
    """Every array of a tree with modules in it, with a path to it."""
    state = nnx.split({"": tree})[1]
    for path, leaf in jax.tree.leaves_with_path(state):
        keys = [key for key in path[1:] if not _inside_variable(key)]
        yield name + jax.tree_util.keystr(tuple(keys)), leaf


def _place(path: Sequence[Any]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _inside_variable(key: Any) -> bool:
    return isinstance(key, jax.tree_util.GetAttrKey)


def _scanned(in_axes: Any, args: Any) -> Iterator[tuple[str, Any, int]]:
    """Every array that is scanned, with a path to it and its axis."""
    for path, axes, value in _paired(in_axes, args):
        if isinstance(axes, nnx.StateAxes):
            states = nnx.split(value, *axes.filters)[1:]
            for state, axis in zip(states, axes.axes, strict=True):
                if isinstance(axis, int):
                    for where, leaf in jax.tree.leaves_with_path(state):
                        yield path + jax.tree_util.keystr(where), leaf, axis
        elif isinstance(axes, int):
            for where, leaf in _leaves(value, path):
                yield where, leaf, axes


def _unknown_kinds(in_axes: Any, args: Any) -> Iterator[str]:
    """State that no filter of a StateAxes covers: its kind, and where it is."""
    for path, axes, value in _paired(in_axes, args):
        if isinstance(axes, nnx.StateAxes) and ... not in axes.filters:
            rest = nnx.split(value, *axes.filters, ...)[-1]
            for where, leaf in nnx.to_flat_state(rest):
                place = ".".join(str(key) for key in where)
                yield f"{place} of {path} ({type(leaf).__name__})"


def _paired(in_axes: Any, args: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each leaf of `in_axes` with the argument, or the part of one, that it is for."""

    def is_leaf(x: Any) -> bool:
        return x is None or x is nnx.Carry or isinstance(x, nnx.StateAxes)

    for path, axes in jax.tree.leaves_with_path(in_axes, is_leaf=is_leaf):
        value: Any = args
        for key in path:
            value = value[getattr(key, "idx", getattr(key, "key", None))]
        yield "args" + jax.tree_util.keystr(path), axes, value
