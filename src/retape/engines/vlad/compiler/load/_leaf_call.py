"""Calls of a program's function with numbers and arrays: one call of C, no handles.

What the runtime is told of arguments is the same for all that look the same. So a call
copies them into one row of doubles, which stays where it is, and makes nothing but its
result.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int32
from typing import Any, NamedTuple

from retape.engines.vlad.compiler.load._interface import (
    A_REAL,
    Request,
    from_tokens,
    to_tokens,
)
from retape.engines.vlad.compiler.load._native import Native
from retape.engines.vlad.evaluators._image import load_numpy
from retape.engines.vlad.values._looks import Look
from retape.engines.vlad.values._values import Value

_ROOM = 4096
"""Doubles that are kept between calls; more are new for each, as an array is."""

_MOST_TOKENS = 64
"""Tokens of a result that stay where they are: a tuple of thirty arrays."""


class _Row:
    """The reals of arguments in one row, in the order of their tokens.

    Attributes:
        row: The row, with room for those of a result.
        at: Where it is: to ask NumPy for that takes a microsecond.
        parts: The part of each argument but a bool, which has no reals.
        lengths: The parts where the lengths of matrices stand, with these.
    """

    __slots__ = ("at", "lengths", "parts", "row")

    def __init__(self, looks: Sequence[Look], row: Any) -> None:
        self.row = row
        place = row.__array_interface__["data"][0]
        self.at = ctypes.cast(place, ctypes.POINTER(c_double))
        self.parts: list[Any] = []
        self.lengths: list[tuple[Any, Any]] = []
        end = 0
        for look in looks:
            if isinstance(look, tuple):
                if len(look) == 2:
                    lengths = load_numpy().array(look, row.dtype)
                    self.lengths.append((row[end : end + 2], lengths))
                    end += 2
                size = _size(look)
                self.parts.append(row[end : end + size].reshape(look))
                end += size
            elif look is float or look is int:
                self.parts.append(row[end : end + 1])
                end += 1
            else:
                self.parts.append(None)

    def put(self, arguments: tuple[Any, ...]) -> None:
        for part, lengths in self.lengths:
            part[...] = lengths
        for part, argument in zip(self.parts, arguments):  # noqa: B905
            if part is not None:
                part[...] = argument


class _Layout(NamedTuple):
    """Arguments of some looks as the runtime is told them.

    Attributes:
        request: What a call is made with, and where it is.
        looks: Those.
        tokens: How many.
        total: The arguments' reals.
        kept: Where these stand; `None` where they are too many to be kept.
        are_numbers: Whether each argument is one, and they are kept.
    """

    request: Request
    place: Any
    looks: tuple[Look, ...]
    tokens: int
    total: int
    kept: _Row | None
    are_numbers: bool


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
        self._run = native.dll.vlad_call

    def ready(self, looks: tuple[Look, ...]) -> Callable[[tuple[Any, ...]], Value]:
        """What is called with arguments that look so, by one thread at a time.

        It raises a `RunError` if the program stops with a fault.
        """
        return functools.partial(self._call, self._layout(looks))

    def _layout(self, looks: tuple[Look, ...]) -> _Layout:
        """What the runtime is told of arguments that look so."""
        parts = [_sample(look) for look in looks]
        shape: Value = parts.pop()
        while parts:
            shape = (parts.pop(), shape)
        tokens, reals = to_tokens(shape)
        total = len(reals)
        request = Request(a=len(tokens), b=total, c=self._definition)
        request.tokens = (c_int32 * len(tokens))(*tokens)
        request.d, request.e = max(_ROOM, total), _MOST_TOKENS
        request.words = ctypes.addressof(self._tokens)
        kept = _Row(looks, self._row) if total <= _ROOM else None
        if kept is not None:
            request.reals = kept.at
        numbers = kept is not None and all(look in (float, int) for look in looks)
        place = ctypes.byref(request)
        return _Layout(request, place, looks, len(tokens), total, kept, numbers)

    def _call(self, layout: _Layout, arguments: tuple[Any, ...]) -> Value:
        self.native.enter()
        request, place, looks, tokens, total, kept, are_numbers = layout
        if kept is None:
            kept = _Row(looks, load_numpy().empty(total))
            request.reals = kept.at
        if are_numbers:
            self._cells[:total] = arguments
        else:
            kept.put(arguments)
        if self._run(place):
            request.a = tokens  # a fault may have come in between
            self.native.fail()
        return self._given(request, kept.row)

    def _given(self, request: Request, row: Any) -> Value:
        """The value that the runtime has exported."""
        count, end = request.r, request.s
        tokens: Any = self._tokens
        if not request.t:
            tokens, row = (c_int32 * count)(), load_numpy().empty(end)
            self.native.dll.vlad_exported(tokens, row.ctypes.data)
        if count == 1 and end == 1 and tokens[0] == A_REAL:
            return self._cells[0] if row is self._row else float(row[0])
        if count == 1 and end > 1:
            return row[:end].copy()
        names = self.native.names
        return from_tokens(tokens[:count], row, end, names, as_arrays=True)


def _size(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) == 1 else shape[0] * shape[1]


def _sample(look: Look) -> Value:
    """A value of the language that has the tokens of an argument that looks so."""
    if isinstance(look, bool):
        return look
    if not isinstance(look, tuple):
        return 0.0
    data = load_numpy().zeros(_size(look))
    return data if len(look) == 1 else ((0.0, 0.0), data)
