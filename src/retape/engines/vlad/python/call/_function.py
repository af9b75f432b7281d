"""Compiled Python functions, and their derivatives, as Python calls them."""

import ast
import functools
from dataclasses import dataclass
from threading import RLock
from types import FunctionType as PythonFunction
from typing import Any

from retape._errors import GradientTypeError, PlanError
from retape.driver import Report
from retape.engines.vlad.language._core import Const, Lambda, PConst, Var
from retape.engines.vlad.language._diagnostics import RunError
from retape.engines.vlad.language._program import deep_recursion
from retape.engines.vlad.python.call._values import (
    Tangent,
    argument_to_language,
    result_to_python,
    type_of,
)
from retape.engines.vlad.python.expressions._derivative_calls import (
    pullback_call,
    pushforward_call,
)
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.expressions._unit import Unit
from retape.engines.vlad.python.read._source import parse_function
from retape.engines.vlad.python.read._types import (
    UNKNOWN,
    FunctionType,
    TupleType,
    Type,
    as_floats,
    is_differentiable,
)
from retape.engines.vlad.python.statements._instance import translate
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._core_builder import tuple_pattern
from retape.engines.vlad.python.terms._statics import function_key
from retape.engines.vlad.session._disk import Disk, Store
from retape.engines.vlad.session._engines import (
    CompiledEngine,
    Engine,
    EngineName,
    Setting,
    make_engine,
)
from retape.engines.vlad.session._options import check_engine, check_plan
from retape.plan._base import Plan

ROOT = "root"


@dataclass(slots=True)
class _Compiled:
    """A function compiled for arguments of some types."""

    unit: Unit
    engine: Engine
    setting: Setting
    returns: Type


class CompiledCallable:
    """Something that is compiled when it is called, once for each kind of arguments.

    Threads that call it take turns.
    """

    def __init__(self, engine: EngineName, plan: Plan | None) -> None:
        check_engine(engine)
        self._engine: EngineName = engine
        self._plan = check_plan(plan)
        self._made: dict[tuple[Type, ...], _Compiled] = {}
        self._lock = RLock()

    def _source(self) -> PythonFunction:
        """The Python function that is compiled."""
        raise NotImplementedError

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        """What is evaluated when this is called with some operands."""
        function = FunctionType(function_key(self))
        nothing = Const(owner.text.where(node), ())
        return owner.calls.of_function(node, function, nothing, operands)

    def _run(
        self,
        args: tuple[Any, ...],
        store: Store | None = None,
        reports: list[Report] | None = None,
    ) -> Any:
        types = tuple(type_of(arg) for arg in args)
        with self._lock:
            made = self._for(types)
            arrays = self._engine == "compiled"
            argument = (
                argument_to_language(args, TupleType(types), arrays) if args else ()
            )
            made.setting.report = None if reports is None else reports.append
            made.engine.keep(None if store is None else Disk(store))
            try:
                value = made.engine.apply(ROOT, argument)
            except RunError as error:
                raise _in_python(error) from None
            finally:
                made.setting.report = None
                made.engine.keep(None)
            return result_to_python(value, made.returns)

    def _for(self, types: tuple[Type, ...]) -> _Compiled:
        made = self._made.get(types)
        if made is None or not made.unit.is_current():
            with deep_recursion():
                made = self._compiled(types)
            self._made[types] = made
        return made

    def _compiled(self, types: tuple[Type, ...]) -> _Compiled:
        unit = Unit(translate)
        parsed = parse_function(self._source())
        where = parsed.text.where(parsed.node)
        names = [unit.build.fresh("argument") for _ in types]
        owner = Expressions(unit, parsed)
        operands: list[Operand] = [
            (Var(where, n), t) for n, t in zip(names, types, strict=True)
        ]
        core, returns = self._root(owner, parsed.node, operands)
        if returns is UNKNOWN:
            parsed.text.refuse(parsed.node, "this function never returns")
        pattern = tuple_pattern(names) if names else PConst(())
        unit.definitions[ROOT] = Lambda(where, parsed.name, pattern, core, ())
        setting = Setting(self._plan, lambda: None, print)
        engine = make_engine(self._engine, unit.program(ROOT), setting)
        if isinstance(engine, CompiledEngine):
            engine.use_arrays()
        return _Compiled(unit, engine, setting, returns)


class NativeFunction(CompiledCallable):
    """A Python function that is compiled to native code when it is called."""

    def __init__(self, function: PythonFunction, engine: EngineName) -> None:
        super().__init__(engine, None)
        functools.update_wrapper(self, function)
        self.__retape_function__ = function

    def __repr__(self) -> str:
        return f"<native function {self.__retape_function__.__qualname__}>"

    def _source(self) -> PythonFunction:
        return self.__retape_function__

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The function's value.

        Raises:
            CompileError: If the function has something in it that is not compiled.
            RunError: If it stops with a fault; the message has the line of Python.
        """
        return self._run(bound(self.__retape_function__, args, keywords))


class Derivative(CompiledCallable):
    """`grad(f)` or `value_and_grad(f)`, to be called as `f` is, or differentiated."""

    def __init__(
        self,
        kind: str,
        function: Any,
        argnums: int | tuple[int, ...],
        plan: Plan | None,
        engine: EngineName,
    ) -> None:
        super().__init__(engine, plan)
        if function_key(function) is None or innermost(function) is None:
            raise GradientTypeError(_no_function(function))
        self._function = function
        self.__retape_derivative__ = kind, function, _checked_argnums(argnums)

    def __repr__(self) -> str:
        kind, function, _ = self.__retape_derivative__
        return f"<{kind} of {function!r}>"

    def _source(self) -> PythonFunction:
        return innermost(self._function)

    def __call__(self, *args: Any, store: Store | None = None) -> Any:
        """The derivative at arguments.

        Args:
            args: Those of the function.
            store: A directory, `DiskStore` or `TieredStore` in which the states of the
                sweep are kept; the same call goes on with them after a crash.
        """
        return self._run(bound(innermost(self._function), args, {}), store)

    def measured(self, *args: Any) -> tuple[Any, list[Report]]:
        """The derivative, and reports of what the sweeps did."""
        reports: list[Report] = []
        value = self._run(bound(innermost(self._function), args, {}), reports=reports)
        return value, reports


def _checked_argnums(argnums: Any) -> int | tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
        raise PlanError(
            f"`argnums={argnums!r}` names no arguments; pass a number from 0, or a "
            "tuple of them"
        )
    if len(set(numbers)) < len(numbers):
        raise PlanError(f"`argnums={argnums!r}` names an argument twice")
    return argnums if isinstance(argnums, int) else numbers


class Pushforward(CompiledCallable):
    """A function and its directional derivative, by forward mode."""

    def __init__(self, function: Any, engine: EngineName) -> None:
        super().__init__(engine, None)
        if function_key(function) is None or innermost(function) is None:
            raise GradientTypeError(_no_function(function))
        self._function = function

    def _source(self) -> PythonFunction:
        return innermost(self._function)

    def __call__(self, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        """The value at primals, and its derivative along tangents."""
        types = tuple(as_floats(type_of(each)) for each in primals)
        along = tuple(as_floats(type_of(each)) for each in tangents)
        if types != along or not all(is_differentiable(each) for each in types):
            raise GradientTypeError(
                "`jvp` takes two tuples of numbers, arrays and tuples of them, "
                "alike: a tangent for each primal"
            )
        for primal, tangent in zip(primals, tangents, strict=True):
            if getattr(primal, "shape", None) != getattr(tangent, "shape", None):
                raise GradientTypeError(
                    f"a tangent of shape {tangent.shape} for a primal of shape "
                    f"{primal.shape}; make them alike"
                )
        return self._run((*primals, *(Tangent(each) for each in tangents)))

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        half = len(operands) // 2
        return pushforward_call(owner, node, self._function, operands, half)


class Pullback(CompiledCallable):
    """A function's value, and the cotangents of its arguments, by reverse mode."""

    def __init__(self, function: Any, plan: Plan | None, engine: EngineName) -> None:
        super().__init__(engine, plan)
        if function_key(function) is None or innermost(function) is None:
            raise GradientTypeError(_no_function(function))
        self._function = function

    def _source(self) -> PythonFunction:
        return innermost(self._function)

    def __call__(self, primals: tuple[Any, ...], cotangent: Any) -> Any:
        """The value at primals, and their cotangents for one of the value."""
        if not primals or not all(is_differentiable(type_of(p)) for p in primals):
            raise GradientTypeError(
                "`vjp` takes a tuple of numbers, arrays and tuples of them; close over "
                "other arguments"
            )
        return self._run((*primals, Tangent(cotangent)))

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        return pullback_call(owner, node, self._function, operands)


def _no_function(function: Any) -> str:
    return (
        f"`{function!r}` is no Python function that could be compiled; pass a function "
        "written with `def` or `lambda`, or what `native` made of one"
    )


def innermost(function: Any) -> Any:
    """The Python function inside derivatives and decorators; `None` without one."""
    while not isinstance(function, PythonFunction):
        if hasattr(function, "__retape_derivative__"):
            function = function.__retape_derivative__[1]
        elif getattr(function, "__retape_function__", None) is not None:
            function = function.__retape_function__
        else:
            return None
    return function


def bound(
    function: PythonFunction, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Any, ...]:
    """Arguments by position: those by name, and defaults, in their places."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    if not keywords and len(args) == len(names):
        return args
    if len(args) > len(names):
        raise TypeError(
            f"{function.__name__}() takes {len(names)} arguments, not {len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in keywords.items():
        if name not in names or name in given:
            raise TypeError(f"{function.__name__}() cannot be given {name!r} here")
        given[name] = value
    first = len(names) - len(defaults)
    for index, name in enumerate(names):
        if name not in given:
            if index < first:
                raise TypeError(f"{function.__name__}() misses its argument {name!r}")
            given[name] = defaults[index - first]
    return tuple(given[name] for name in names)


def _in_python(error: RunError) -> RunError:
    """A fault in Python's words."""
    message = error.message
    for name in ("`vector-ref`: ", "`vector-set`: "):
        if message.startswith(name):
            message = message.removeprefix(name)
            message = message.replace(
                " is no index of a vector of ",
                " is out of range of an array of length ",
            )
            message = message.split(";")[0]
    if message.startswith("`make-vector`: "):
        message = message.removeprefix("`make-vector`: ").replace(
            "no length", "no length of an array"
        )
    return RunError(message, error.where, error.chain)
