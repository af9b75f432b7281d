"""Compiled functions against CPython: each on each engine, in cells that are drawn."""

import math
from pathlib import Path

import pytest

from retape import native
from tests.judges.vlad.corpus import ROWS
from tests.judges.vlad.judging import Cell, cells_of, judge, loaded

CELLS = cells_of(list(ROWS))
# The hybrid engine runs what the two others are made of, and the C compiler takes
# 0.45 s for a row: a third of the rows and half of them are asked on every change, the
# rest at night.
AT_NIGHT = {
    "interpreter": set[str](),
    "hybrid": {*ROWS} - {*list(ROWS)[::3]},
    "compiled": {*list(ROWS)[1::2]},
}


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        pytest.param(
            name,
            cell,
            id=f"{name}-{cell}",
            marks=[pytest.mark.slow] * (name in AT_NIGHT[cell.engine]),
        )
        for name, cell in CELLS
    ],
)
def test_a_compiled_function_is_what_python_computes(
    name: str, cell: Cell, tmp_path: Path
) -> None:
    """The same value, the same type, and the gradient that differences find."""
    row = ROWS[name]
    judge(row.function, row.args, row.by, cell, tmp_path)


def nested(depth: int) -> str:
    test = "x > 0.5"
    for i in range(depth):
        test = f"(x < {i} {'and' if i % 2 else 'or'} {test})"
    return f"def f(x):\n    return 1.0 if {test} else math.sin(x)\n"


def test_conditions_within_conditions_take_no_longer_than_they_are(
    tmp_path: Path,
) -> None:
    """Of 40 levels, each twice as long as the one within it, none would end."""
    made = loaded(tmp_path, "nested", "import math\n\n\n" + nested(40))
    for x in (0.3, 7.5, -1.0):
        assert native.function(made.f, engine="interpreter")(x) == made.f(x)
    assert math.isfinite(made.f(0.3))
