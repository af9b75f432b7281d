"""Calls of a program's function with numbers and arrays: one call of C, no handles.

What the arguments are is told by tokens, which stay the same as long as the arrays have
the same shapes; their reals stand in one row of doubles, which stays where it is. So a
call copies the arguments, and makes nothing but its result.
"""

import ctypes
from ctypes import c_int32
from typing import Any, NamedTuple

from retape.engines.vlad.compiler.load._interface import Request
from retape.engines.vlad.compiler.load._native import Native
from retape.engines.vlad.compiler.load._tokens import from_tokens, to_tokens
from retape.engines.vlad.evaluators._image import load_numpy
from retape.engines.vlad.values._values import Value

_KEPT = 4096
"""Doubles that are kept between calls; more are new for each, as an array is."""

_MOST_LAYOUTS = 32
"""Combinations of shapes whose tokens are kept."""


class _Reals:
    """A row of doubles, and where it is: to ask NumPy for that takes a microsecond.

    Attributes:
        cells: The same doubles, one by one: NumPy takes three times as long for those.
    """

    __slots__ = ("at", "cells", "row")

    def __init__(self, count: int) -> None:
        numpy = load_numpy()
        self.row = numpy.empty(max(1, count))
        place = self.row.__array_interface__["data"][0]
        self.at = ctypes.cast(place, ctypes.POINTER(ctypes.c_double))
        self.cells = (ctypes.c_double * len(self.row)).from_buffer(self.row)


class _Layout(NamedTuple):
    """The arguments' shapes as the runtime is told them.

    Attributes:
        request: What a call is made with, and where it is.
        tokens: How many.
        total: The arguments' reals.
        are_numbers: Whether each argument is one of them.
    """

    request: Request
    place: Any
    tokens: int
    total: int
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
        self._kept = _Reals(_KEPT)
        self._layouts: dict[Any, _Layout] = {}
        self._run = native.dll.vlad_call

    def __call__(self, arguments: tuple[Any, ...]) -> Value:
        """The value, for one thread at a time.

        Raises:
            RunError: If the program stops with a fault.
        """
        self.native.enter()
        shapes = tuple([getattr(value, "shape", value is True) for value in arguments])
        layout = self._layouts.get(shapes) or self._layout(shapes, arguments)
        request, place, tokens, total, are_numbers = layout
        reals = self._kept
        if total > _KEPT:
            reals = _Reals(total)
            request.reals = reals.at
        if are_numbers:
            reals.cells[:total] = arguments
        else:
            _put_reals(reals.row, arguments, shapes)
        if self._run(place):
            request.a = tokens  # a fault may have come in between
            self.native.fail()
        return reals.cells[0] if request.t else self._given(request)

    def _layout(self, shapes: Any, arguments: tuple[Any, ...]) -> _Layout:
        parts = [_sample(value) for value in arguments]
        shape: Value = parts.pop()
        while parts:
            shape = (parts.pop(), shape)
        tokens, reals = to_tokens(shape)
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        request = Request(a=len(tokens), b=len(reals), c=self._definition)
        request.tokens = (c_int32 * len(tokens))(*tokens)
        request.reals = self._kept.at
        numbers = all(value.__class__ in (float, int) for value in arguments)
        place = ctypes.byref(request)
        made = _Layout(request, place, len(tokens), len(reals), numbers)
        self._layouts[shapes] = made
        return made

    def _given(self, request: Request) -> Value:
        """The value that the runtime has exported."""
        reals = self._kept if request.s <= _KEPT else _Reals(request.s)
        tokens = (c_int32 * request.r)()
        self.native.dll.vlad_exported(tokens, reals.at)
        if request.r == 1 and request.s > 1:
            return reals.row[: request.s].copy()
        names = self.native.names
        return from_tokens(tokens, reals.row, request.s, names, as_arrays=True)


def _put_reals(row: Any, arguments: tuple[Any, ...], shapes: tuple[Any, ...]) -> None:
    """Put the reals of arguments into a row, in the order of their tokens."""
    at = 0
    for value, shape in zip(arguments, shapes, strict=True):
        if shape.__class__ is tuple:
            if len(shape) == 2:
                row[at], row[at + 1] = shape
                at += 2
                value = value.reshape(-1)
            end = at + len(value)
            row[at:end] = value
            at = end
        elif value.__class__ is not bool:
            row[at] = value
            at += 1


def _sample(value: Any) -> Value:
    """A value of the language that has the tokens of an argument."""
    if value.__class__ is bool:
        return value
    shape = getattr(value, "shape", ())
    if not shape:
        return 0.0
    data = load_numpy().zeros(value.size)
    return data if len(shape) == 1 else ((0.0, 0.0), data)
