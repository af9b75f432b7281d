"""Paths of values among the arguments of a scan over NNX objects.

Paths are written as a user would write them: `args[1]['linear']['kernel']`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

import jax
from flax import nnx


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
