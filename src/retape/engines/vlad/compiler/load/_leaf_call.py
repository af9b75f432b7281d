"""Calls of a program's function with numbers and arrays: one call of C, no handles.

What the runtime is told of arguments is the same for all that look the same. So a call
copies them into one row of doubles, which stays where it is, and makes nothing but its
result.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int32
from typing import Any

from retape.engines.vlad.compiler.load._interface import (
    FAULT,
    Request,
    from_tokens,
    load_numpy,
    to_tokens,
)
from retape.engines.vlad.compiler.load._native import Native
from retape.engines.vlad.values._looks import Look
from retape.engines.vlad.values._values import Value

_ROOM = 4096
"""Doubles that are kept between calls; more are new for each, as an array is."""

_MOST_TOKENS = 64
"""Tokens of a result that stay where they are: a tuple of thirty arrays."""


class LeafCall:
    """A definition that is called with numbers, bools and arrays of doubles.

    Args:
        native: The program.
        definition: The definition's number.
    """

    def __init__(self, native: Native, definition: int) -> None:
        self.native = native
        self._definition = definition
        self._row = load_numpy().empty(_ROOM)
        # The same doubles one by one: NumPy takes three times as long for those.
        self._cells = (c_double * _ROOM).from_buffer(self._row)
        self._tokens = (c_int32 * _MOST_TOKENS)()

    def ready(self, looks: tuple[Look, ...]) -> Callable[[tuple[Any, ...]], Value]:
        """What is called with arguments that look so, by one thread at a time.

        It raises a `RunError` if the program stops with a fault.
        """
        native, ours, cells = self.native, self._row, self._cells
        tokens, reals = to_tokens(_sample(looks))
        total, empty = len(reals), load_numpy().empty
        request = Request(a=len(tokens), b=total, c=self._definition)
        request.tokens = (c_int32 * len(tokens))(*tokens)
        request.d, request.e = max(_ROOM, total), _MOST_TOKENS
        request.words = ctypes.addressof(self._tokens)
        request.reals = _pointer(ours)
        lengths = tuple(look for look in looks if _is_matrix(look))
        kept = (ours, _laid(looks, ours)) if total <= _ROOM else None
        are_numbers = kept is not None and all(look in (float, int) for look in looks)
        enter, run, place = native.enter, native.dll.vlad_call, ctypes.byref(request)

        def call(arguments: tuple[Any, ...]) -> Value:
            enter()
            if are_numbers:
                row, cells[:total] = ours, arguments
            else:
                row, parts = kept or (new := empty(total), _laid(looks, new))
                if kept is None:
                    request.reals = _pointer(row)
                for part, argument in zip(parts, arguments + lengths, strict=True):
                    if part is not None:
                        part[...] = argument
            given = run(place)
            if given > 0:
                return row[: given - 1].copy()
            if given == 0:
                return float(row[0])
            if given == FAULT:
                native.fail()
            return self._several(request, row)

        return call

    def _several(self, request: Request, row: Any) -> Value:
        """A value that is more than a number or an array."""
        count, end = request.r, request.s
        tokens: Any = self._tokens
        if not request.t:
            tokens, row = (c_int32 * count)(), load_numpy().empty(end)
            self.native.dll.vlad_exported(tokens, row.ctypes.data)
        names = self.native.names
        return from_tokens(tokens[:count], row, end, names, as_arrays=True)


def _pointer(row: Any) -> Any:
    """Where a row is: to ask NumPy for that takes a microsecond."""
    place = row.__array_interface__["data"][0]
    return ctypes.cast(place, ctypes.POINTER(c_double))


def _is_matrix(look: Look) -> bool:
    return isinstance(look, tuple) and len(look) == 2


def _laid(looks: Sequence[Look], row: Any) -> list[Any]:
    """The parts of a row of each argument, in the order of their tokens, but of a bool,
    which has no reals; and then those of the lengths of matrices."""
    parts: list[Any] = []
    lengths: list[Any] = []
    end = 0
    for look in looks:
        shape = look if isinstance(look, tuple) else ()
        if len(shape) == 2:
            lengths.append(row[end : end + 2])
            end += 2
        size = 0 if isinstance(look, bool) else math.prod(shape)
        parts.append(row[end : end + size].reshape(shape) if size else None)
        end += size
    return parts + lengths


def _sample(looks: Sequence[Look]) -> Value:
    """A value of the language that has the tokens of arguments that look so."""
    *others, found = map(_sample_of, looks)
    for each in reversed(others):
        found = (each, found)
    return found


def _sample_of(look: Look) -> Value:
    if not isinstance(look, tuple):
        return look if isinstance(look, bool) else 0.0
    data = load_numpy().zeros(math.prod(look))
    return data if len(look) == 1 else ((0.0, 0.0), data)
