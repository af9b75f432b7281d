"""What Python programmers call: `run` a program, or `compile` one to functions."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from retape._errors import PlanError
from retape._plan import Plan
from retape._plans import logarithmic
from retape.driver import Report
from retape.engines.vlad._arrays import Version, vector
from retape.engines.vlad._disk import Disk, Store
from retape.engines.vlad._engines import Engine, EngineName, Setting, make_engine
from retape.engines.vlad._fault import RunError, Source
from retape.engines.vlad._program import Program, Session, deep_recursion, load
from retape.engines.vlad._read import is_number
from retape.engines.vlad._values import Closure, Shown, Value, show

DEFAULT_PLAN: Plan = logarithmic(stage=100_000)
"""As many snapshots as sweeps, and stages of 100,000 steps."""

Input = str | Iterable[float] | TextIO | None
"""Where `read-real` reads: text, numbers, a stream, or nothing."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a program did.

    Attributes:
        output: The lines that it printed, the values of its expressions among them.
        values: Those values, as Python has them: floats, bools, lists, tuples.
        steps: The evaluation steps of each expression.
        reports: One for each run that `checkpoint-*j` divided, if they were asked for.
    """

    output: str
    values: tuple[Any, ...]
    steps: tuple[int, ...]
    reports: tuple[Report, ...] = field(repr=False)


def run(
    program: str | Path,
    *,
    engine: EngineName = "compiled",
    plan: Plan | None = None,
    stdin: Input = None,
    stdout: TextIO | None = None,
    report: bool = False,
    store: Store | None = None,
) -> RunResult:
    r"""Run a VLAD program.

    Args:
        program: A path, or the program's text. A string that ends in `.vlad` is a path.
        engine: "interpreter", "hybrid" or "compiled": the same results, the same steps.
        plan: How `checkpoint-*j` divides a run; by default `logarithmic`, with stages
            of 100,000 steps.
        stdin: What `read-real` reads.
        stdout: Where to write the output as it is made, besides returning it.
        report: Whether to return what the checkpointed runs did.
        store: A directory, or a `retape.DiskStore` or `TieredStore` made for one, in
            which each outermost run of `checkpoint-*j` keeps its states. A program
            whose process ended, in whatever way, goes on from there when the same
            call is made again, and its gradients have the same bits.

    Returns:
        The output, the values and the steps.

    Raises:
        LanguageError: If the program is wrong. The message says where, and what to do.
        StoreError: If the store is another program's, or cannot be written.
        UnsupportedError: If a run that was to be kept is inside another derivative.

    Example:
        >>> from retape import vlad
        >>> result = vlad.run("(define (f x) (* x x)) (*j f 3 1)", engine="interpreter")
        >>> result.output, result.values, result.steps
        ('(9 . 6)\n', ((9.0, 6.0),), (11,))
    """
    _check_engine(engine)
    source = source_of(program)
    console = Console(reader(stdin), stdout)
    reports: list[Report] = []
    setting = Setting(
        _check_plan(plan),
        console.read,
        console.write,
        reports.append if report else None,
        None if store is None else Disk(store),
    )
    values, steps = _evaluate(Session().add(source), engine, setting, console)
    return RunResult(console.text(), values, steps, tuple(reports))


def _evaluate(
    program: Program, name: EngineName, setting: Setting, console: "Console"
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The values of a program's expressions, which are printed, and their steps."""
    values: list[Any] = []
    steps: list[int] = []
    engine = make_engine(name, program, setting) if program.expressions else None
    for index in range(len(program.expressions)):
        assert engine is not None
        value, count = engine.evaluate(index)
        console.write(show(value))
        values.append(to_python(value))
        steps.append(count)
    return tuple(values), tuple(steps)


class Console:
    """The input and output of a run."""

    def __init__(self, read: Callable[[], float | None], out: TextIO | None) -> None:
        self.read = read
        self._out = out
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line + "\n")
        if self._out is not None:
            self._out.write(line + "\n")

    def text(self) -> str:
        return "".join(self._lines)


def source_of(program: str | Path) -> Source:
    """A program's source: a path's, or a text's own."""
    if isinstance(program, Path) or program.endswith(".vlad"):
        return load(program)
    return Source("program", program)


def reader(stdin: Input) -> Callable[[], float | None]:
    """What gives the next real of an input."""
    if stdin is None:
        numbers: Iterator[float] = iter(())
    elif isinstance(stdin, str):
        numbers = _numbers(io.StringIO(stdin))
    elif hasattr(stdin, "read"):
        numbers = _numbers(stdin)
    else:
        numbers = (float(x) for x in stdin)
    return lambda: next(numbers, None)


def _numbers(stream: Any) -> Iterator[float]:
    for line in stream:
        for word in line.split():
            if not is_number(word):
                raise RunError(
                    f"`read-real` read `{word[:40]}`, which is no number; correct the "
                    "input",
                    None,
                )
            yield float(word)


class Vector(tuple[Any, ...]):
    """A vector of the language, in Python: a tuple of its elements.

    Example:
        >>> from retape import vlad
        >>> module = vlad.compile(
        ...     "(define (f v) (* (vector-ref v 0) (vector-ref v 1)))",
        ...     engine="interpreter",
        ... )
        >>> module["f"].grad(vlad.Vector([3, 5]))
        Vector([5.0, 3.0])
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Vector({list(self)!r})"


def to_python(value: Value) -> Any:
    """A value as Python has it: a proper list is a list, another pair a tuple.

    A vector is a `Vector`.

    Example:
        >>> to_python((1.0, (2.0, ()))), to_python((1.0, 2.0))
        ([1.0, 2.0], (1.0, 2.0))
    """
    with deep_recursion(10_000_000):
        return _to_python(value)


def _to_python(value: Value) -> Any:
    if type(value) is Closure:
        return Shown(value.code.name)
    if type(value) is Version:
        return Vector(_to_python(item) for item in value.items())
    if type(value) is not tuple:
        return value
    items: list[Any] = []
    while type(value) is tuple and value:
        items.append(_to_python(value[0]))
        value = value[1]
    if type(value) is tuple:
        return items
    return (*items, _to_python(value))


def from_python(value: Any) -> Value:
    """The inverse of `to_python`; any number is a real, an array of numbers a vector.

    Example:
        >>> from_python([1, (2, 3)])
        (1.0, ((2.0, 3.0), ()))
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, Vector):
        return vector([from_python(item) for item in value])
    if getattr(value, "ndim", None) == 1 and hasattr(value, "tolist"):
        return vector([from_python(item) for item in value.tolist()])
    if isinstance(value, (list, tuple)):
        parts = [from_python(item) for item in value]
        if isinstance(value, tuple) and len(parts) == 1:
            raise TypeError(
                f"`{value!r}` is a tuple of one, which is no value of the language; "
                "pass a list, or the element"
            )
        tail: Value = parts.pop() if isinstance(value, tuple) and parts else ()
        for part in reversed(parts):
            tail = (part, tail)
        return tail
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"`{value!r}` of type `{type(value).__name__}` is no value of the "
            "language; pass numbers, booleans, lists and tuples of them"
        ) from None


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
    _check_engine(engine)
    made = Session().add(source_of(program))
    names = tuple(made.definitions)
    setting = Setting(_check_plan(plan), lambda: None, print)
    engine_ = make_engine(engine, Program(made.definitions, (), names), setting)
    return Module(engine_, names)


def _check_engine(engine: str) -> None:
    if engine not in ("interpreter", "hybrid", "compiled"):
        raise PlanError(
            f"`engine={engine!r}` is none of the three implementations; pass "
            '"interpreter", "hybrid" or "compiled"'
        )


def _check_plan(plan: Plan | None) -> Plan:
    if plan is None:
        return DEFAULT_PLAN
    if not isinstance(plan, Plan):
        raise PlanError(
            f"`plan={plan!r}` is no plan; pass one such as "
            "`retape.logarithmic(stage=100_000)`"
        )
    return plan


def emit(program: str | Path, form: str) -> str:
    """The text of a program in one of the compiler's forms.

    Args:
        program: A path, or the program's text, as in `run`.
        form: "cps", the intermediate form, or "c".

    Example:
        >>> from retape import vlad
        >>> print(vlad.emit("(+ 1 2)", "cps"), end="")
        f0() =
          tick 8
          let t.1 = + 1 2
          return t.1
        <BLANKLINE>
        run f0
    """
    from retape.engines.vlad.compiler._pipeline import compile_program
    from retape.engines.vlad.compiler._pretty import pretty

    if form not in ("cps", "c"):
        raise PlanError(f'`form={form!r}` is no form of a program; pass "cps" or "c"')
    compiled = compile_program(Session().add(source_of(program)))
    return pretty(compiled.module) if form == "cps" else compiled.text
