"""Texts of C that all who write it have in common: operators, constants, files."""

from retape.engines.vlad.operators._partials import filled
from retape.engines.vlad.operators._table import OPERATORS


def operator_text(op: str, a: str, b: str) -> str:
    """An operator's result, from the texts of its operands.

    Examples:
        >>> operator_text("max", "x", "y"), operator_text("sqrt", "x", "")
        ('y > x ? y : x', 'double_sqrt(x)')
    """
    row = OPERATORS[op]
    assert row.c, f"no typed operator is called {op}"
    if row.is_lifted and row.is_call:
        return f"double_{row.called}({', '.join((a, b)[: row.arity])})"
    return filled(row.c, {"a": a, "b": b})


def real_text(value: float) -> str:
    """A double in C."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "HUGE_VAL" if value > 0 else "(-HUGE_VAL)"
    return f"({value.hex()})" if str(value).startswith("-") else value.hex()


NEXT_FILE = "/* The next file. */"
"""The line between two files."""


def files_of(text: str) -> tuple[str, ...]:
    """The files of a text."""
    return tuple(text.split(NEXT_FILE))
