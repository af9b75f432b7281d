"""Calls of a program's function with reals only: one call of C, and no handles."""

import ctypes
from ctypes import c_double, c_int32

from retape.engines.vlad.compiler.load._interface import Request
from retape.engines.vlad.compiler.load._native import Native
from retape.engines.vlad.compiler.load._tokens import to_tokens
from retape.engines.vlad.values._values import Value


class QuickCall:
    """A definition that is called with some reals.

    Args:
        native: The program.
        definition: The definition's number.
        count: How many reals, one or more.
    """

    def __init__(self, native: Native, definition: int, count: int) -> None:
        self.native = native
        request = self._request = Request(c=definition)
        self._place = ctypes.byref(self._request)
        shape: Value = 0.0
        for _ in range(count - 1):
            shape = (0.0, shape)
        tokens, _ = to_tokens(shape)
        self._tokens, self._reals = len(tokens), (c_double * count)()
        self._request.tokens = (c_int32 * len(tokens))(*tokens)
        self._request.reals = self._reals
        request.a, request.b = self._tokens, count
        self._run = native.dll.vlad_call

    def __call__(self, arguments: tuple[float, ...]) -> Value:
        """The value, for one thread at a time.

        Raises:
            RunError: If the program stops with a fault.
        """
        self.native.enter()
        request, reals = self._request, self._reals
        reals[:] = arguments
        if self._run(self._place):
            request.a = self._tokens  # a fault may have come in between
            self.native.fail()
        return reals[0] if request.t else self.native.exported(request)
