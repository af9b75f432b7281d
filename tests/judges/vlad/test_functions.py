"""Compiled functions against CPython: each on each engine, in cells that are drawn."""

from pathlib import Path

import pytest

from tests.judges.vlad.corpus import ROWS
from tests.judges.vlad.judging import Cell, judge, pairwise

CELLS = pairwise(list(ROWS), seed=20261126)


@pytest.mark.parametrize(
    ("name", "cell"), CELLS, ids=[f"{name}-{cell}" for name, cell in CELLS]
)
def test_a_compiled_function_is_what_python_computes(
    name: str, cell: Cell, tmp_path: Path
) -> None:
    """The same value, the same type, and the gradient that differences find."""
    row = ROWS[name]
    judge(row.function, row.args, row.by, cell, tmp_path)
