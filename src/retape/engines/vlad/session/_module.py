"""Definitions as functions that Python calls and differentiates."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

from retape.engines.vlad.language._externals import External
from retape.engines.vlad.language._program import Program, Session
from retape.engines.vlad.operators._table import NEGATE
from retape.engines.vlad.session._console import source_of
from retape.engines.vlad.session._disk import Disk, Store
from retape.engines.vlad.session._engines import (
    Engine,
    EngineName,
    Setting,
    in_text,
    make_engine,
)
from retape.engines.vlad.session._forked import follow_forks
from retape.engines.vlad.session._options import check_engine, check_plan
from retape.engines.vlad.session._python_values import from_python, to_python
from retape.engines.vlad.values._values import Value
from retape.plan._base import Plan


class Function:
    """A definition that Python can call."""

    def __init__(self, module: "Module", name: str) -> None:
        self._module = module
        self.name = name

    def __repr__(self) -> str:
        return f"<VLAD function {self.name}>"

    def __call__(self, *args: Any) -> Any:
        """The function's value, as Python has it."""
        with self._module.lock:
            return to_python(self._module.engine.apply(self.name, _argument(args)))

    def grad(self, *args: Any) -> Any:
        """The gradient of a real value: that of one argument, or a tuple of several."""
        with self._module.lock:
            return self._gradient("*j", args)

    def checkpointed_grad(self, *args: Any, store: Store | None = None) -> Any:
        """The same gradient by divide and conquer, under the module's plan.

        With a `store`, as in `run`, a later process goes on with a run that was killed.
        """
        engine = self._module.engine
        with self._module.lock:
            engine.keep(None if store is None else Disk(store))
            try:
                return self._gradient("checkpoint-*j", args)
            finally:
                engine.keep(None)

    def _gradient(self, operator: str, args: tuple[Any, ...]) -> Any:
        argument = _argument(args)
        result = self._module.engine.operate(operator, self.name, argument, 1.0)
        cotangent = result[1]
        if len(args) <= 1:
            return to_python(cotangent)
        parts: list[Any] = []
        for _ in args[1:]:
            parts.append(to_python(cotangent[0]))
            cotangent = cotangent[1]
        return (*parts, to_python(cotangent))


def _argument(args: tuple[Any, ...]) -> Value:
    """Several arguments are a tuple, as in the language."""
    if not args:
        return ()
    result = from_python(args[-1])
    for arg in reversed(args[:-1]):
        result = (from_python(arg), result)
    return result


class Module(Mapping[str, Function]):
    """The definitions of a program, by name; threads that call them take turns."""

    def __init__(self, make: Callable[[], Engine], names: tuple[str, ...]) -> None:
        self._make = make
        self._engine: Engine | None = make()
        self.lock = RLock()
        self._names = names
        follow_forks(self)

    def begin_again(self) -> Any:
        """In a child process: forget what another thread was in at the fork."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
            return None
        abandoned = self._engine, self.lock
        self.lock, self._engine = RLock(), None
        return abandoned

    @property
    def engine(self) -> Engine:
        """What runs the definitions; ask with the lock."""
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def __getitem__(self, name: str) -> Function:
        if name not in self._names:
            raise KeyError(
                f"`{name}` is not defined in the program; it defines "
                f"{', '.join(self._names) or 'nothing'}"
            )
        return Function(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def compile(
    program: str | Path,
    *,
    engine: EngineName = "compiled",
    plan: Plan | None = None,
    externals: Mapping[str, External] | None = None,
) -> Module:
    """Make the definitions of a VLAD program callable from Python.

    Args:
        program: A path, or the program's text, as in `run`. Its expressions are not
            evaluated.
        engine: Which implementation runs it.
        plan: How `checkpointed_grad`, and `checkpoint-*j` inside the program, divide.
        externals: Python functions that the program may call, by name.

    Returns:
        A mapping from names to functions. A function takes and returns numbers,
        booleans, lists and tuples; it has `grad` and `checkpointed_grad`.

    Raises:
        LanguageError: If the program is wrong.
        PlanError: If `plan` is none that VLAD obeys, or `engine` is not known.

    Examples:
        >>> from retape import vlad
        >>> module = vlad.compile("(define (f x y) (* x y))", engine="interpreter")
        >>> module["f"](2, 5), module["f"].grad(2, 5)
        (10.0, (5.0, 2.0))
    """
    check_engine(engine)
    made = Session(externals=externals or {}).add(source_of(program))
    names = tuple(name for name in made.definitions if _is_own(name, externals))
    setting = Setting(check_plan(plan), lambda: None, in_text(print))
    return Module(lambda: make_engine(engine, _library(made, names), setting), names)


def _library(program: Program, names: tuple[str, ...]) -> Program:
    """A program of which only the definitions are used, from outside."""
    return replace(program, expressions=(), roots=names, differentiated=True)


def _is_own(name: str, externals: Mapping[str, External] | None) -> bool:
    """Tell whether a definition is one that the program's text makes."""
    return name != NEGATE and name not in (externals or {})
