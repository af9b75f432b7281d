"""Definitions as functions that Python calls and differentiates."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from retape._plan import Plan
from retape.engines.vlad._console import source_of
from retape.engines.vlad._disk import Disk, Store
from retape.engines.vlad._engines import Engine, EngineName, Setting, make_engine
from retape.engines.vlad._options import check_engine, check_plan
from retape.engines.vlad._program import Program, Session
from retape.engines.vlad._python import from_python, to_python
from retape.engines.vlad._values import Value


class Function:
    """A definition that Python can call."""

    def __init__(self, module: "Module", name: str) -> None:
        self._module = module
        self.name = name

    def __repr__(self) -> str:
        return f"<VLAD function {self.name}>"

    def __call__(self, *args: Any) -> Any:
        """The function's value, as Python has it."""
        return to_python(self._module.engine.apply(self.name, _argument(args)))

    def grad(self, *args: Any) -> Any:
        """The gradient of a real value: that of one argument, or a tuple of several."""
        return self._gradient("*j", args)

    def checkpointed_grad(self, *args: Any, store: Store | None = None) -> Any:
        """The same gradient by divide and conquer, under the module's plan.

        With a `store`, as in `run`, a later process goes on with a run that was killed.
        """
        engine = self._module.engine
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
    """The definitions of a program, by name."""

    def __init__(self, engine: Engine, names: tuple[str, ...]) -> None:
        self.engine = engine
        self._names = names

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
    program: str | Path, *, engine: EngineName = "compiled", plan: Plan | None = None
) -> Module:
    """Make the definitions of a VLAD program callable from Python.

    Args:
        program: A path, or the program's text, as in `run`. Its expressions are not
            evaluated.
        engine: Which implementation runs it.
        plan: How `checkpointed_grad`, and `checkpoint-*j` inside the program, divide.

    Returns:
        A mapping from names to functions. A function takes and returns numbers,
        booleans, lists and tuples; it has `grad` and `checkpointed_grad`.

    Raises:
        LanguageError: If the program is wrong.

    Example:
        >>> from retape import vlad
        >>> module = vlad.compile("(define (f x y) (* x y))", engine="interpreter")
        >>> module["f"](2, 5), module["f"].grad(2, 5)
        (10.0, (5.0, 2.0))
    """
    check_engine(engine)
    made = Session().add(source_of(program))
    names = tuple(made.definitions)
    setting = Setting(check_plan(plan), lambda: None, print)
    engine_ = make_engine(engine, Program(made.definitions, (), names), setting)
    return Module(engine_, names)
