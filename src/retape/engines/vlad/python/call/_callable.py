"""Something that is compiled when it is called, once for each kind of arguments."""

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

from retape.driver._report import Report
from retape.engines.vlad.language._core import Const, Lambda, PConst, Var
from retape.engines.vlad.language._diagnostics import GaveUp, RunError, TooLong, Where
from retape.engines.vlad.language._program import deep_recursion
from retape.engines.vlad.python.call._arguments import checked_function
from retape.engines.vlad.python.call._values import (
    argument_to_language,
    result_to_python,
    type_of,
)
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.expressions._unit import Printed, Unit
from retape.engines.vlad.python.read._source import CompileError
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    ArrayType,
    FunctionType,
    OneOf,
    TupleType,
    Type,
)
from retape.engines.vlad.python.statements._instance import translate
from retape.engines.vlad.python.terms._arithmetic import LARGEST_INT, RAISED, Operand
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
from retape.engines.vlad.session._forked import follow_forks
from retape.engines.vlad.session._options import check_engine, check_plan
from retape.engines.vlad.values._looks import looks_of
from retape.engines.vlad.values._values import Value
from retape.plan._base import Plan


class Printer:
    """Takes the reals: the number of a `print`, and then what is printed by it."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._now: Printed | None = None
        self._values: list[float] = []

    def begin(self) -> None:
        """Forget what a run has left that was stopped."""
        self._now, self._values = None, []

    def __call__(self, value: float) -> None:
        if self._now is None:
            self._now = self._unit.prints[int(value)]
        else:
            self._values.append(value)
        if len(self._values) == self._now.count:
            done, values = self._now, self._values
            self.begin()
            print(_as_printed(done, values), end=done.end)


def _as_printed(done: Printed, values: list[float]) -> str:
    numbers = iter(values)
    found: list[str] = []
    for part in done.parts:
        if isinstance(part, str):
            found.append(part)
            continue
        type_, form = part
        value = next(numbers)
        shown = bool(value) if type_ is BOOL else int(value) if type_ is INT else value
        found.append(format(shown, form) if form else str(shown))
    return "".join(found)


ROOT = "root"

_VECTOR = ArrayType(1)

ReadyCall = Callable[[tuple[Any, ...]], Value]
"""What calls the program with numbers and arrays."""

NOT_READY = object()
"""No value: the call is made in the ordinary way."""

_MOST_LOOKS = 64
"""Combinations of types and shapes that are called at once."""


@dataclass(slots=True)
class Made:
    """A function compiled for arguments of some types.

    Attributes:
        where: Where the function is defined.
    """

    unit: Unit
    engine: Engine
    setting: Setting
    returns: Type
    where: Where


class CompiledCallable:
    """Something that is compiled when it is called, once for each kind of arguments.

    Threads that call it take turns.

    Args:
        function: A Python function, a compiled one, or a derivative of one.
        engine: What runs it.
        plan: How the runs of its derivatives are divided.
        cache: Whether other processes find its machine code.
    """

    def __init__(
        self,
        function: Any,
        engine: EngineName,
        plan: Plan | None = None,
        cache: bool = True,
    ) -> None:
        check_engine(engine)
        self._function, self._source = function, checked_function(function)
        self._cache = cache
        self._engine: EngineName = engine
        self._plan = check_plan(plan)
        self._made: dict[tuple[Type, ...], Made] = {}
        self._ready: dict[Any, tuple[Unit, ReadyCall, Type | None]] = {}
        self._lock = RLock()
        follow_forks(self)

    def begin_again(self) -> Any:
        """In a child process: forget what another thread was in at the fork."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return None
        abandoned = self._made, self._ready, self._lock
        self._made, self._ready, self._lock = {}, {}, RLock()
        return abandoned

    @property
    def options(self) -> tuple[EngineName, Plan | None]:
        """How it is compiled."""
        return self._engine, self._plan

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        """The term that a call with these operands evaluates."""
        function = FunctionType(function_key(self))
        nothing = Const(owner.text.where(node), ())
        return owner.calls.of_function(node, function, nothing, operands, tells=True)

    def _at_once(self, args: tuple[Any, ...]) -> Any:
        """The value, if a call with arguments that look so was made ready."""
        ready = self._ready.get(looks_of(args, LARGEST_INT))
        if ready is None:
            return NOT_READY
        unit, call, returns = ready
        with self._lock:
            if not unit.is_current():
                return NOT_READY
            try:
                value = call(args)
            except GaveUp:  # what is called next has the boxed form, too
                self._ready.clear()
                return NOT_READY
            except RunError as error:
                raise _in_python(error, unit) from None
        return value if returns is None else result_to_python(value, returns)

    def _run(
        self,
        args: tuple[Any, ...],
        store: Store | None = None,
        reports: list[Report] | None = None,
    ) -> Any:
        if store is None and reports is None:
            value = self._at_once(args)
            if value is not NOT_READY:
                return value
        types = tuple(type_of(arg) for arg in args)
        with self._lock:
            return self._ordinarily(args, types, store, reports)

    def _ordinarily(
        self,
        args: tuple[Any, ...],
        types: tuple[Type, ...],
        store: Store | None,
        reports: list[Report] | None,
    ) -> Any:
        made = self._for(types)
        arrays = self._engine == "compiled"
        argument = argument_to_language(args, TupleType(types), arrays) if args else ()
        with _watched(made, store, reports):
            try:
                value = made.engine.apply(ROOT, argument)
            except RunError as error:
                raise _in_python(error, made.unit) from None
        self._make_ready(args, made)
        return result_to_python(value, made.returns)

    def _make_ready(self, args: tuple[Any, ...], made: Made) -> None:
        """Call the program at once when arguments that look so come again."""
        looks, engine = looks_of(args, LARGEST_INT), made.engine
        if looks and isinstance(engine, CompiledEngine):
            if len(self._ready) >= _MOST_LOOKS:
                self._ready.clear()
            returns = None if made.returns in (FLOAT, _VECTOR) else made.returns
            self._ready[looks] = made.unit, engine.ready(ROOT, looks), returns

    def _for(self, types: tuple[Type, ...]) -> Made:
        made = self._made.get(types)
        if made is None or not made.unit.is_current():
            try:
                with deep_recursion():
                    made = self._compiled(types)
            except TooLong as error:
                raise CompileError(error.message, None) from None
            self._made[types] = made
        return made

    def _compiled(self, types: tuple[Type, ...]) -> Made:
        unit = Unit(translate)
        parsed = unit.parsed(self._source)
        where = parsed.text.where(parsed.node)
        names = [unit.build.fresh("argument") for _ in types]
        owner = Expressions(unit, parsed)
        operands = [
            Operand(Var(where, n), t) for n, t in zip(names, types, strict=True)
        ]
        root = self._root(owner, parsed.node, operands)
        returns = root.type
        if returns is UNKNOWN:
            parsed.text.refuse(parsed.node, "this function never returns")
        if isinstance(returns, OneOf):
            returns = OneOf(tuple(unit.told))
        pattern = tuple_pattern(names) if names else PConst(())
        unit.definitions[ROOT] = Lambda(where, parsed.name, pattern, root.core, ())
        setting = Setting(self._plan, lambda: None, Printer(unit), cache=self._cache)
        engine = make_engine(self._engine, unit.program(ROOT), setting)
        if isinstance(engine, CompiledEngine):
            engine.use_arrays()
        return Made(unit, engine, setting, returns, where)


@contextmanager
def _watched(
    made: Made, store: Store | None, reports: list[Report] | None
) -> Iterator[None]:
    """Keep or report the runs of a derivative, if that is asked for."""
    if store is None and reports is None:
        yield
        return
    made.setting.report = None if reports is None else reports.append
    made.engine.keep(None if store is None else Disk(store))
    try:
        yield
    finally:
        made.setting.report = None
        made.engine.keep(None)


def _in_python(error: RunError, unit: Unit) -> BaseException:
    """A fault in Python's words, or the exception that the program raised."""
    raised = None if error.where is None else unit.raised.get(error.where)
    if error.message == RAISED and raised is not None:
        found, args = raised
        exception = found(*args)
        exception.add_note(str(error))
        return exception
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
