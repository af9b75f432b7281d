"""What the tests of this part use that is no public name, and why.

`engine_of` is what `vlad.run` does with a text, one expression at a time, so that step
counts and plans can be asked of each; `show` prints a value as the command does.
`forms` has the compiler's intermediate form, whose checker is an oracle; `compile_with`
makes the runtime collect all the time.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retape.engines.vlad.compiler import _pipeline
from retape.engines.vlad.compiler.ir import _check, _ir, _pretty
from retape.engines.vlad.compiler.load import _c_compiler
from retape.engines.vlad.language._program import Session, Source, load
from retape.engines.vlad.operators import _table
from retape.engines.vlad.session._engines import Setting, in_text, make_engine
from retape.engines.vlad.values._values import show as show

RUNTIME = _c_compiler.RUNTIME
complete = _c_compiler.complete
"""A file of C with what stands before each when it is compiled."""

OPERATORS = _table.OPERATORS
_HIDDEN = _table.Trait.HIDDEN | _table.Trait.ITEM
WITH_PARTIALS = {
    name: row.arity
    for name, row in OPERATORS.items()
    if row.by and not row.traits & _HIDDEN
}
"""Operators of the language that have derivatives, and how many reals each takes."""

NEW_ROW = """
import math
from retape.engines.vlad.operators._row import REAL, Operator
from retape.engines.vlad.operators._table import OPERATORS
OPERATORS["cbrt"] = Operator(
    "cbrt", (REAL,), REAL, "cbrt(a)", math.cbrt, ("1.0 / (3.0 * y * y)",)
)
"""
"""The row that the architecture page shows, before anything is made of the table."""


def table_of(**fields: Any) -> Any:
    """A table of one row that takes and gives reals."""
    row = _table.Operator(takes=("real",), gives="real", **fields)
    return _table.table((row,))


forms = SimpleNamespace(
    **{name: getattr(_ir, name) for name in vars(_ir) if not name.startswith("_")},
    check=_check.check,
    IllFormed=_check.IllFormed,
    pretty=_pretty.pretty,
)


def program_of(text: str | Path, name: str = "program") -> Any:
    """A program's text, or that of a file, expanded."""
    found = load(text) if isinstance(text, Path) else Source(name, text)
    return Session().add(found)


def engine_of(
    name: str,
    program: Any,
    plan: Any,
    *,
    read: Callable[[], float | None] = lambda: None,
    write: Callable[[str], None] = lambda line: None,
    report: Callable[[Any], None] | None = None,
) -> Any:
    """An implementation with a program, or the text of one."""
    if isinstance(program, str):
        program = program_of(program)
    return make_engine(name, program, Setting(plan, read, in_text(write), report))  # type: ignore[arg-type]


def intermediate(text: str) -> Any:
    """The compiler's intermediate form of a program."""
    return _pipeline.intermediate(program_of(text))


def c_of(text: str, name: str = "program") -> str:
    """The C code of a program."""
    return _pipeline.compile_program(program_of(text, name)).whole.text


def compile_with(patch: pytest.MonkeyPatch, *flags: str, quickly: bool = False) -> None:
    """Compile with more flags, or quickly: without optimisation."""
    kept = _c_compiler.FLAGS
    if quickly:
        kept = tuple("-O0" if flag == "-O2" else flag for flag in kept)
    patch.setattr(_c_compiler, "FLAGS", (*kept, *flags))


def bytes_of(made: Any) -> int:
    """What the runtime of a compiled callable took from the system, at most."""
    (compiled,) = made._made.values()
    return compiled.engine.native.measured().mapped
