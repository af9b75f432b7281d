"""Programs in NumPy's words: as CPython, or refused by name, and never wrong."""

import numpy as np
import pytest

from retape import native
from tests.judges.vlad.judging import Cell, fresh, judge, right_or_refused
from tests.judges.vlad.numpy_programs import REFUSED, RIGHT

COMPILED = (
    "stencil",
    "bounded",
    "normalised",
    "solved",
    "pairs",
    "cholesky",
    "swapped",
)
"""Programs that are judged on the compiled engine, too, each of another kind."""

CELLS = [
    *((name, Cell("interpreter", "fixed space")) for name in RIGHT),
    *((name, Cell("compiled")) for name in COMPILED),
]


@pytest.mark.parametrize(("name", "cell"), CELLS, ids=[f"{n}-{c}" for n, c in CELLS])
def test_a_program_in_numpys_words_is_what_python_computes(
    name: str, cell: Cell
) -> None:
    """Value, type and gradient, and no argument is changed."""
    function, args = RIGHT[name]
    value = function(*fresh(args))
    has_gradient = isinstance(value, float)
    by = tuple(i for i, a in enumerate(args) if isinstance(a, np.ndarray))
    judge(function, args, by if has_gradient else (), cell)


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_another_thing_is_refused_with_advice(name: str) -> None:
    function, args = REFUSED[name]
    error = right_or_refused(function, args)
    assert error is not None, "it is compiled, and its refusal is not needed any more"
    assert str(error).strip()


def test_a_fault_inside_of_a_library_function_is_told_where_it_was_called() -> None:
    function, args = REFUSED["lengths_differ"]
    with pytest.raises(native.RunError, match=r"numpy_programs\.py.*\n.*v\[1:3\] = u"):
        native.function(function, engine="interpreter")(*fresh(args))
