"""Texts of C that all who write it have in common: operators, constants, files; and the
table of operators, which the runtime's headers are made with.

That stands before every file that is compiled, so it is part of what an object is kept
by. `runtime/numbers.h` puts its parts where they belong.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TypeVar

from retape.engines.vlad.language._builtins import PYTHON_FAULTS
from retape.engines.vlad.operators._partials import expression, filled
from retape.engines.vlad.operators._row import REAL, Operator, Trait
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


_Item = TypeVar("_Item")


def grouped(
    items: Iterable[_Item], size: Callable[[_Item], int], most: int
) -> Iterator[list[_Item]]:
    """Functions together that become one function of C, of bounded size."""
    found: list[_Item] = []
    total = 0
    for item in items:
        if found and total + size(item) > most:
            yield found
            found, total = [], 0
        found.append(item)
        total += size(item)
    if found:
        yield found


def number_table(name: str, numbers: dict[int, int]) -> Iterator[str]:
    """A table of numbers, zero where there is none."""
    yield f"const uint16_t {name}[{max(numbers, default=0) + 1}] = {{"
    yield from (f"  [{key}] = {value}," for key, value in sorted(numbers.items()))
    yield "};" if numbers else "  0};"


class _Boxed:
    """An expression of C on any reals."""

    def number(self, text: str) -> str:
        return f"box({text})"

    def of(self, row: Operator, args: Sequence[str]) -> str:
        if row.arity == 1:
            return f"unary(OP_{row.called}, {args[0]})"
        return f"real_{row.called}({', '.join(args)})"

    def rounded(self, arg: str) -> str:
        return f"box(rint({self.primal(arg)}))"

    def choice(self, test: str, then: str, other: str) -> str:
        return f"({test} ? {then} : {other})"

    def primal(self, name: str) -> str:
        return f'strip({name}, "", -1)'


@cache
def operators_header() -> str:
    """The table's macros.

    OPERATORS_OF_ONE(X), OPERATORS_OF_TWO(X): X(name, text) for each with a rule;
    OPERATORS_ON_DOUBLES: a function double_name for each;
    FUNCTIONS_OF_THE_LIBRARY: declarations of those of C's that the table mentions;
    PARTIALS_OF_ONE, BY_LEFT, BY_RIGHT: cases of a switch that return a partial;
    ITEM_OPERATORS(X), ON_ITEMS: operators on items only, and cases that apply them;
    IS_ITEM_OF_TWO(word): whether one takes two operands.
    """
    rows = [row for row in OPERATORS.values() if row.is_lifted]
    one, two = ([row for row in rows if row.arity == n] for n in (1, 2))
    items = [row for row in OPERATORS.values() if row.traits & Trait.ITEM]
    macros = {
        "OPERATORS_OF_ONE(X)": map(_listed, one),
        "OPERATORS_OF_TWO(X)": map(_listed, two),
        "OPERATORS_ON_DOUBLES": map(_on_doubles, rows),
        "FUNCTIONS_OF_THE_LIBRARY": _of_the_library(),
        "PARTIALS_OF_ONE": _cases(one, 0),
        "BY_LEFT": _cases(two, 0),
        "BY_RIGHT": _cases(two, 1),
        "ITEM_OPERATORS(X)": map(_listed, items),
        "ON_ITEMS": map(_on_items, items),
        "IS_ITEM_OF_TWO(word)": _are_of_two(items),
    }
    lines = (f"#define {name} {' '.join(text)}" for name, text in macros.items())
    return "\n".join(lines) + "\n"


def _are_of_two(rows: Sequence[Operator]) -> Iterator[str]:
    tests = (f"(word) == EACH_{row.called}" for row in rows if row.arity > 1)
    yield f"({' || '.join(tests)})"


def _listed(row: Operator) -> str:
    return f'X({row.called}, "{row.shown}")'


def _on_doubles(row: Operator) -> str:
    params = ", ".join(f"double {letter}" for letter in "ab"[: row.arity])
    return f"static inline double double_{row.called}({params}) {{ return {row.c}; }}"


def _of_the_library() -> Iterator[str]:
    for row in OPERATORS.values():
        name = row.c.partition("(")[0]
        if row.gives == REAL and row.is_call and name.isalnum():
            yield f"double {name}({', '.join(['double'] * row.arity)});"


def _cases(rows: Sequence[Operator], operand: int) -> Iterator[str]:
    for row in rows:
        yield f"case OP_{row.called}: return {expression(row.by[operand], _Boxed())};"


def _on_items(row: Operator) -> str:
    if row.fault is None:
        return f"case EACH_{row.called}: return {expression(row.c, _Boxed())};"
    number = PYTHON_FAULTS.index(row.fault.why)
    primals = {x: f'strip({x}, "{row.shown}", site)' for x in "aby"}
    test = filled(row.fault.c, primals)
    stop = f'fail(PYTHON_FAULT, "", site, box({number}.0), NOTHING)'
    value = _Boxed().of(OPERATORS[row.checked], "ab")
    return f"case EACH_{row.called}: y = {value}; if ({test}) {stop}; return y;"
