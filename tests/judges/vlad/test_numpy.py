"""Programs as Numba's users write them: as CPython, or refused by name, never wrong."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import GradientTypeError, logarithmic, native
from tests.judges.vlad import expressions
from tests.judges.vlad.judging import Cell, fresh, judge, right_or_refused
from tests.judges.vlad.numpy_programs import REFUSED, RIGHT

COMPILED = (
    "bounded",
    "normalised",
    "solved",
    "pairs",
    "swapped",
    "a_list_that_shrinks",
    "a_list_of_pairs",
    "a_named_tuple_is_given",
    "a_dict_is_changed",
    "what_is_printed",
)
"""Programs that are judged on the compiled engine, too, each of another kind."""
LONG = "a_list_of_arrays", "four_dimensions", "stencil", "cholesky"
"""Such that the C compiler takes four seconds for, or six."""

CELLS = [
    *((name, Cell("interpreter", "fixed space")) for name in RIGHT),
    *((name, Cell("compiled")) for name in COMPILED),
    *(pytest.param(n, Cell("compiled"), marks=pytest.mark.slow) for n in LONG),
]


@pytest.mark.slow("broadcast_again_and_again-interpreter-fixed space")
@pytest.mark.parametrize(("name", "cell"), CELLS, ids=str)
def test_a_program_of_a_user_of_numba_is_what_python_computes(
    name: str, cell: Cell
) -> None:
    """Value, type and gradient, and no argument is changed."""
    function, args = RIGHT[name]
    with contextlib.redirect_stdout(io.StringIO()):
        value = function(*fresh(args))
        has_gradient = isinstance(value, float)
        by = tuple(i for i, a in enumerate(args) if not isinstance(a, int))
        judge(function, args, by if has_gradient else (), cell)


@pytest.mark.parametrize("expression", expressions.RIGHT)
def test_an_expression_is_what_python_computes(expression: str, tmp_path: Path) -> None:
    function, args = expressions.function_of(expression, tmp_path)
    by = tuple(range(len(args))) if isinstance(function(*args), float) else ()
    judge(function, args, by, Cell("interpreter", "fixed space"))


def test_the_table_is_as_long_as_promised() -> None:
    assert len(RIGHT) + len(expressions.RIGHT) >= 60


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_another_thing_is_refused_with_advice(name: str) -> None:
    function, args = REFUSED[name]
    error = right_or_refused(function, args)
    assert error is not None, "it is compiled, and its refusal is not needed any more"
    assert str(error).strip()


@pytest.mark.parametrize("expression", expressions.REFUSED)
def test_an_expression_that_would_be_another_thing_is_refused(
    expression: str, tmp_path: Path
) -> None:
    error = right_or_refused(*expressions.function_of(expression, tmp_path))
    assert error is not None, "it is compiled, and its refusal is not needed any more"


def test_a_fault_inside_of_a_library_function_is_told_where_it_was_called() -> None:
    function, args = REFUSED["lengths_differ"]
    with pytest.raises(native.RunError, match=r"numpy_programs\.py.*\n.*v\[1:3\] = u"):
        native.function(function, engine="interpreter")(*fresh(args))


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_what_is_printed_is_what_python_prints(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by a gradient, and once, although its run is divided."""
    function, args = RIGHT["what_is_printed"]
    function(*fresh(args))
    expected = capsys.readouterr().out
    made = native.function(function, engine=engine)
    slope = native.grad(function, engine=engine, plan=logarithmic(stage=5))
    for call in (made, made, slope, slope):
        call(*fresh(args))
        assert capsys.readouterr().out == expected


class Unstable(Exception):
    """One of a user's own."""


def halved(x, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        x = x * 0.5
        if x < 0.1:
            raise Unstable("too small", 3)
        if i > 90:
            raise TimeoutError
    return x


@pytest.mark.parametrize("engine", ["interpreter", "hybrid", "compiled"])
@pytest.mark.parametrize(
    ("x", "kind", "args"),
    [(0.5, Unstable, ("too small", 3)), (1e90, TimeoutError, ())],
)
def test_an_exception_of_the_program_reaches_its_caller(
    engine: Any, x: float, kind: type[Exception], args: tuple[Any, ...]
) -> None:
    """That exception, with the line of the program, of a gradient, too."""
    made = native.function(halved, engine=engine)
    slope = native.grad(halved, engine=engine, plan=logarithmic(stage=5))
    for call in (made, slope, made):
        with pytest.raises(kind) as caught:
            call(x, 99)
        assert caught.value.args == args
        (note,) = caught.value.__notes__
        assert "raise" in note and "test_numpy.py" in note
    assert made(4.0, 2) == 1.0


@pytest.mark.parametrize(
    "value",
    [[1.0, None], [[1.0]], [np.ones(2), np.ones(3)], [1.0, (2.0,)], {1: 2.0}, {}],
    ids=str,
)
def test_a_value_that_has_no_form_is_refused_with_what_has_one(value: Any) -> None:
    with pytest.raises(GradientTypeError, match=r"pass|fill them"):
        native.function(lambda v: len(v), engine="interpreter")(value)
