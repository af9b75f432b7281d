"""Something that is compiled when it is called, once for each kind of arguments."""

import ast
from dataclasses import dataclass
from threading import RLock
from types import FunctionType as PythonFunction
from typing import Any

from retape.driver import Report
from retape.engines.vlad.language._core import Const, Lambda, PConst, Var
from retape.engines.vlad.language._diagnostics import RunError
from retape.engines.vlad.language._program import deep_recursion
from retape.engines.vlad.python.call._values import (
    argument_to_language,
    result_to_python,
    type_of,
)
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.expressions._unit import Unit
from retape.engines.vlad.python.read._types import (
    UNKNOWN,
    FunctionType,
    TupleType,
    Type,
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
        """The term that a call with these operands evaluates."""
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
        parsed = unit.parsed(self._source())
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
