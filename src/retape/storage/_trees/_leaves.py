"""Leaves and containers told apart, and what is neither refused.

Nothing here imports NumPy: a process that has not imported it has no arrays.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from retape._errors import StoreError
from retape.storage._trees._jax_arrays import is_jax_array, is_traced
from retape.storage._trees._kinds import opaque, take_apart
from retape.storage._trees._tensors import is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator


PLAIN = frozenset({type(None), bool, int, float, str, complex})
"""Values that cannot be changed. A subclass, such as an `Enum`, is none of them."""


def is_array(value: object) -> bool:
    """Tell whether a value is an array of NumPy's, and of no subclass."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_number(value: object) -> bool:
    """Tell whether a value is a number of NumPy's."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def node_of(value: Any) -> Any:  # `Node | None`; callers know which.
    """A container taken apart; `None` for a leaf that is no plain value.

    Raises:
        StoreError: If the value is neither.
    """
    node = take_apart(value)
    if node is None and not is_number(value) and not is_of_framework(value):
        raise no_state(value)
    return node


def is_of_framework(value: object) -> bool:
    """Tell whether a value is an array of JAX's or a tensor of PyTorch's."""
    return is_tensor(value) or is_jax_array(value)


def memory_of(value: Any) -> Iterator[Any]:
    """The arrays and tensors in a tree, in order, which a step may write to.

    Those inside opaque objects are not looked at.

    Raises:
        StoreError: If the tree contains itself.
    """
    try:
        yield from _memory_of(value)
    except RecursionError as error:
        raise endless(value) from error


def _memory_of(value: Any) -> Iterator[Any]:
    if type(value) in PLAIN or opaque(type(value)) is not None:
        return
    if is_array(value) or is_tensor(value):
        yield value
        return
    node = node_of(value)
    for part in node.parts if node else ():
        yield from _memory_of(part)


def endless(value: object) -> StoreError:
    """The refusal of a tree in which Python's recursion comes to no end."""
    return StoreError(
        f"a `{type(value).__name__}` contains itself, or nests too deeply for a state. "
        "Pass a tree of arrays."
    )


def no_state(value: object) -> StoreError:
    """The refusal of a value that no state may contain."""
    kind = type(value)
    if is_traced(value):
        return StoreError(
            "an array that JAX traces cannot be in a state: `retape.adjoint` runs "
            "step by step, and is no part of a traced function. Call it outside of "
            "`jax.jit`, `jax.grad` and the like; gradients of traced functions are "
            "those of `retape.jax`."
        )
    if kind is dict:
        return StoreError(
            "a value of type `dict` cannot be in a state that is written, unless its "
            "keys are strings. Use strings."
        )
    return StoreError(
        f"a value of type `{kind.__name__}` cannot be in a state. A state, a "
        "cotangent or a tape may consist of arrays of NumPy and JAX, tensors of "
        "PyTorch, numbers, strings, tuples, lists, dictionaries with string keys and "
        "dataclasses. Give a class of your own the methods `copy`, `nbytes`, "
        "`to_arrays` and `from_arrays`; for one that is not your own see "
        "`retape.register_state`."
    )
