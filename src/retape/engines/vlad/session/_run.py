"""`run` a program, or `emit` one of its forms, as the command does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from retape.driver._report import Report
from retape.engines.vlad.language._externals import External
from retape.engines.vlad.language._program import Program, Session
from retape.engines.vlad.session._console import Console, Input, reader, source_of
from retape.engines.vlad.session._disk import Disk, Store
from retape.engines.vlad.session._engines import (
    EngineName,
    Setting,
    in_text,
    make_engine,
)
from retape.engines.vlad.session._options import check_engine, check_plan
from retape.engines.vlad.session._python_values import to_python
from retape.engines.vlad.values._values import show
from retape.plan._base import Plan


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a program: values, output, reports.

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
    externals: Mapping[str, External] | None = None,
) -> RunResult:
    r"""Run a VLAD program.

    Args:
        program: A path, or the program's text. A string that ends in `.vlad` is a path.
        engine: "interpreter", "hybrid" or "compiled": the same results, the same steps.
        plan: How `checkpoint-*j` divides a run; by default `logarithmic`, with stages
            of 100,000 steps (1,000,000 where code is typed).
        stdin: What `read-real` reads.
        stdout: Where to write the output as it is made, besides returning it.
        report: Whether to return what the checkpointed runs did.
        store: A directory, or a `retape.DiskStore` made for one, in which each
            outermost run of `checkpoint-*j` keeps its states. A program whose process
            ended, in whatever way, goes on from there when the same call is made
            again, and its gradients have the same bits.
        externals: Python functions that the program may call, by name.

    Returns:
        The output, the values and the steps.

    Raises:
        LanguageError: If the program is wrong. The message says where, and what to do.
        StoreError: If the store is another program's, or cannot be written.
        UnsupportedError: If a run that was to be kept is inside another derivative.
        PlanError: If `plan` is none that VLAD obeys, or `engine` is not known.

    Examples:
        >>> from retape import vlad
        >>> result = vlad.run("(define (f x) (* x x)) (*j f 3 1)", engine="interpreter")
        >>> result.output, result.values, result.steps
        ('(9 . 6)\n', ((9.0, 6.0),), (11,))
    """
    check_engine(engine)
    source = source_of(program)
    console = Console(reader(stdin), stdout)
    reports: list[Report] = []
    setting = Setting(
        check_plan(plan),
        console.read,
        in_text(console.write),
        reports.append if report else None,
        None if store is None else Disk(store),
    )
    made = Session(externals=externals or {}).add(source)
    values, steps = _evaluate(made, engine, setting, console)
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


def emit(program: str | Path, form: Literal["cps", "typed", "c"]) -> str:
    """The text of a program in one of the compiler's forms.

    Args:
        program: A path, or the program's text, as in `run`.
        form: "cps", the intermediate form, "typed", that of the functions that are
            compiled to doubles, or "c".

    Returns:
        The text.

    Raises:
        LanguageError: If the program is wrong, with its place.
        StoreError: If there is no such file.

    Examples:
        >>> print(emit("(+ 1 2)", "cps"), end="")
        f0() =
          tick 8
          let t.1 = + 1 2
          return t.1
        <BLANKLINE>
        run f0
    """
    from retape.engines.vlad.compiler._pipeline import compile_program
    from retape.engines.vlad.compiler.ir._pretty import pretty

    compiled = compile_program(Session().add(source_of(program)))
    forms = {"cps": compiled.module, "typed": compiled.typed}
    return pretty(forms[form]) if form in forms else compiled.whole.text
