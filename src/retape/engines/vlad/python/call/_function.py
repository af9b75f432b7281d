"""Compiled Python functions and their gradients, as Python calls them."""

import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType as PythonFunction
from typing import Any

from retape._errors import GradientTypeError
from retape.driver._report import Report
from retape.engines.vlad.python.call._arguments import (
    bound,
    checked_argnums,
)
from retape.engines.vlad.python.call._callable import NOT_READY, CompiledCallable
from retape.engines.vlad.python.call._remembered import (
    Name,
    checked_name,
    found_again,
    found_by_name,
    name_of,
    remembered,
)
from retape.engines.vlad.python.call._values import type_of
from retape.engines.vlad.python.read._signatures import Declared, parse_signatures
from retape.engines.vlad.python.read._source import CompileError
from retape.engines.vlad.python.read._types import FLOAT, INT, kind_of_type
from retape.engines.vlad.session._disk import Store
from retape.engines.vlad.session._engines import EngineName
from retape.plan._base import Plan

_YOUNG = 30
"""Calls after which a derivative is worth a program of its own."""


class NativeFunction(CompiledCallable):
    """A Python function that is compiled to native code when it is called."""

    def __init__(
        self,
        function: PythonFunction,
        engine: EngineName,
        signatures: str | Sequence[str] = (),
        cache: bool = True,
    ) -> None:
        super().__init__(function, engine, cache=cache)
        functools.update_wrapper(self, function)
        self.__retape_function__ = function
        self._signatures = parse_signatures(signatures)
        for signature in self._signatures:
            self._check(signature)

    def __repr__(self) -> str:
        return f"<native function {self.__retape_function__.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """The name that it is found by: the other process compiles it, or has done so.

        Raises:
            UnsupportedError: If it cannot be found by a name.
        """
        function = self.__retape_function__
        if found_by_name(function) is self:
            return found_again, (name_of(function),)
        signatures = tuple(each.text for each in self._signatures)
        options = self._engine, signatures, self._cache
        return _made_again, (NativeFunction, checked_name(function), *options)

    def _check(self, signature: Declared) -> None:
        """Compile the function for a signature, and see what it returns."""
        code = self.__retape_function__.__code__
        if len(signature.args) != code.co_argcount:
            raise GradientTypeError(
                f"the signature `{signature.text}` has {len(signature.args)} arguments,"
                f" and `{code.co_name}` takes {code.co_argcount}; write one for each"
            )
        found = self._for(signature.args).returns
        if signature.returns not in (None, found):
            raise CompileError(
                f"`{code.co_name}` returns {kind_of_type(found)}, and its signature "
                f"`{signature.text}` says another type; write that one, or leave it "
                f"out: `({signature.text.split('(', 1)[1]}`",
                self._for(signature.args).where,
            )

    def _as_declared(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments of a signature: an int is a float where that asks for one."""
        types = tuple(type_of(each) for each in args)
        if any(each.args == types for each in self._signatures):
            return args
        for signature in self._signatures:
            pairs = list(zip(types, signature.args, strict=True))
            if all(a == b or (a is INT and b is FLOAT) for a, b in pairs):
                return tuple(
                    float(each) if a is INT and b is FLOAT else each
                    for each, (a, b) in zip(args, pairs, strict=True)
                )
        given = ", ".join(kind_of_type(each) for each in types)
        known = " or ".join(f"`{each.text}`" for each in self._signatures)
        raise GradientTypeError(
            f"`{self._source.__name__}` is declared as {known}, and called with "
            f"{given}; add a signature, or leave them all out"
        )

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The function's value.

        Raises:
            CompileError: If the function has something in it that is not compiled.
            RunError: If it stops with a fault; the message has the line of Python.
        """
        if not keywords:
            value = self._at_once(args)
            if value is not NOT_READY:
                return value
        given = bound(self.__retape_function__, args, keywords)
        return self._run(self._as_declared(given) if self._signatures else given)


class Derivative(CompiledCallable):
    """`grad(f)` or `value_and_grad(f)`, to be called as `f` is, or differentiated.

    One that is made again and again, as in a loop, of functions that are compiled to
    the same, has its first calls done by the first one that was made.
    """

    def __init__(
        self,
        kind: str,
        function: Any,
        argnums: int | tuple[int, ...],
        plan: Plan | None,
        engine: EngineName,
    ) -> None:
        super().__init__(function, engine, plan)
        self.__signature__ = inspect.signature(self.__call__)
        self.__retape_derivative__ = kind, function, checked_argnums(argnums)
        self._calls = 0

    def __repr__(self) -> str:
        kind, function, _ = self.__retape_derivative__
        return f"<{kind} of {function!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """What it was made of: the other process makes it again.

        Raises:
            UnsupportedError: If its function cannot be found by a name.
        """
        kind, function, argnums = self.__retape_derivative__
        if isinstance(function, PythonFunction):
            function = checked_name(function)
        return _made_again, (
            functools.partial(Derivative, kind),
            function,
            argnums,
            self._plan,
            self._engine,
        )

    def __call__(self, *args: Any, store: Store | None = None) -> Any:
        """The derivative at arguments.

        Args:
            args: Those of the function.
            store: A directory or a `DiskStore` in which the states of the sweep are
                kept; the same call goes on with them after a crash.
        """
        if store is None:
            value = self._at_once(args)
            if value is not NOT_READY:
                return value
        given = bound(self._source, args, {})
        return self._first_alike()._run(given, store)

    def measured(self, *args: Any) -> tuple[Any, list[Report]]:
        """The derivative, and reports of what the sweeps did."""
        reports: list[Report] = []
        given = bound(self._source, args, {})
        value = self._first_alike()._run(given, reports=reports)
        return value, reports

    def _first_alike(self) -> "Derivative":
        """The one that does a call: this one, or an older one that is the same now.

        What a function closes over may change, so this is asked anew for each call.
        """
        if self._calls > _YOUNG:
            return self
        self._calls += 1
        return remembered(self, (Derivative,), lambda: self)


def _made_again(make: Callable[..., Any], function: Any, *options: Any) -> Any:
    """A callable of a function that is found by name, if it is given as one."""
    return make(
        found_again(function) if isinstance(function, Name) else function, *options
    )
