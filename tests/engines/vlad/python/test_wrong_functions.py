"""Functions that are refused, and those that stop: by name, with the line of Python."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import GradientTypeError, PlanError, native
from retape.native import CompileError, RunError
from tests.engines.vlad.support.cases import ENGINES
from tests.judges.vlad import corpus
from tests.judges.vlad.judging import loaded

# pyright: basic

A, M, PLACES = np.ones(3), np.ones((2, 2)), np.array([0, 2, 1])

Row = tuple[Any, tuple[Any, ...], str, str]
"""A function, its arguments, what the error says, and where its caret stands."""

STOP: list[Row] = [
    (lambda x: 1.0 / x, (0.0,), "division by zero", "1.0 / x"),
    (lambda x: math.sqrt(x), (-1.0,), "math domain or range error", "math.sqrt(x)"),
    (lambda x: math.exp(x), (1000.0,), "math domain or range error", "math.exp(x)"),
    (lambda x: x**-1.5, (0.0,), "math domain or range error", "x**-1.5"),
    (lambda a: a[3], (A,), "`3` is out of range of an array of length 3", "a[3]"),
    (lambda a: a[0, 2], (M,), "index out of range", "a[0, 2]"),
    (lambda a, b: a + b, (A, np.ones(2)), "the lengths of two arrays differ", "a + b"),
    (lambda a, b: a @ b, (A, np.ones(2)), "the lengths of two", "a @ b"),
    (lambda a, b: a @ b, (M, A), "the lengths of two", "a @ b"),
    (lambda a, b: a * b, (np.ones((2, 3)), M), "the shapes of", "a * b"),
    (lambda n: n * n, (2**30,), "the int 1152921504606846976 is above 2**53", "n * n"),
    (lambda a, b: a + b, (2**53, 1), "not below 2", "a + b"),
    (lambda a, b: a + b, (2**53 - 1, 1), "not below 2", "a + b"),
    (lambda a, b: a - b, (-(2**53), 1), "not below 2", "a - b"),
    (lambda a, b: a + b, (2**52, 2**52), "not below 2", "a + b"),
    # Of two, the first:
    (
        lambda a, b: (a * b) + np.ones(int(1.0 / b[0])),
        (A, np.zeros(2)),
        "lengths of two arrays",
        "a * b",
    ),
    (
        lambda a, b: (a * b) + np.ones(int(1.0 / b[0])),
        (A, np.zeros(3)),
        "division by zero",
        "1.0 / b[0]",
    ),
]


IN_ARRAYS: list[Row] = [
    (lambda a: (a + 1.0 - a / (a - 1.0)).sum(), (A,), "division by", "a / (a - 1.0)"),
    (lambda a: (a * (a + 2.0) ** (900 * a)).sum(), (A,), "math domain", "(a + 2.0) **"),
    (lambda a, b: (a * 2.0 + (a - b) * a).sum(), (A, np.ones(2)), "lengths", "a - b"),
    (
        lambda a, b: (a * 2.0 + (a - b) * a).sum(),
        (M, np.ones((1, 3))),
        "the shapes of two arrays differ",
        "a - b",
    ),
]
"""In an expression of whole arrays, which is one operator."""


def located(error: pytest.ExceptionInfo[Any], text: str) -> None:
    """The caret stands below this text, or below the bracket around it."""
    where, line, caret, *_ = str(error.value).splitlines()
    assert where.partition(":")[0].endswith("test_wrong_functions.py")
    at = caret.index("^")
    assert line[at:].startswith(text) or line[at - 1 :].startswith(f"({text}"), line


@pytest.mark.slow("compiled-function")
@pytest.mark.parametrize(
    ("make", "rows"),
    [(native.function, STOP), (native.grad, IN_ARRAYS)],
    ids=["function", "grad"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_stops_at_the_line_of_python(
    engine: Any, make: Any, rows: list[Row]
) -> None:
    for f, args, message, text in rows:
        with pytest.raises(RunError, match=re.escape(message)) as caught:
            make(f, engine=engine)(*args)
        located(caught, text)


REFUSED: list[tuple[str, str, str]] = [
    ("print((x, x))", "a tuple of 2 is not printed here; print numbers", "(x, x)"),
    (
        "y = (x, x) if x > 0 else x\n    return y",
        "a tuple of 2 on one way and a float on another",
        "(x, x)",
    ),
    ("if x > 0:\n        y = 1.0\n    return y", "`y` has no value here on some", "y"),
    ("for i in range(2):\n        y = i\n    return y", "`y` has no value here", "y"),
    (
        "if x > 9:\n        A = x\n    return A",
        "`A` has no value here on some way",
        "A",
    ),
    ('return "a"', "a str is not a value of a compiled function", '"a"'),
    ("return x.real", "`.real` of a float is not compiled", "x.real"),
    ("return x + undefined", "`undefined` has no value here", "undefined"),
    ("raise ValueError from None", "`from` and keyword arguments are not", "raise"),
    ("return TABLE[0] + x", "`TABLE` is a dict, which is not compiled", "TABLE"),
    ("return f(x)", "this function never returns", "def f"),
]


HEAD = "TABLE, A = {0: 1}, 2.0\n\n\ndef f(x):\n    "

KINDS: list[tuple[str, str, str]] = [
    ("def f(*x):\n    return 1.0", "`*` among parameters is not compiled", "def f"),
    ("def f(x, *, y=2.0):\n    return x * y", "among parameters", "def f"),
    ("def f(x):\n    yield x", "`f` is a generator or a coroutine", "def f"),
    ("async def f(x):\n    return x", "`f` is a generator or a coroutine", "async"),
]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [*KINDS, *((HEAD + body, *others) for body, *others in REFUSED)],
)
def test_what_is_outside_the_subset_is_refused_with_its_line(
    text: str, message: str, place: str, tmp_path: Path
) -> None:
    made = loaded(tmp_path, "test_wrong_functions", text + "\n")
    with pytest.raises(CompileError, match=re.escape(message)) as caught:
        native.function(made.f, engine="interpreter")(1.0)
    located(caught, place)


class Meters(float):
    def __mul__(self, other: float) -> float:
        raise AssertionError("meters are not multiplied here")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({1.0}, "is not a value of a compiled function; pass numbers"),
        ("a", "is not a value of a compiled function"),
        (2**60, "above 2..53 and would be rounded; pass a float"),
        (np.ones((1,) * 5), "an array of 5 dimensions .* pass at most 4"),
        (np.ones(2, complex), "an array of `complex128`"),
        *(
            (np.array(*each), r"pass\s+`a.astype\(float\)`")
            for each in (
                ([1, 2], np.int32),
                ([1, 2], np.float32),
                ([1, 2**60],),
                ([-(2**63), 0],),
                ([True, False],),
            )
        ),
        (np.float32(1.5), "of type `float32` is not a value of a compiled function"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "type `MaskedArray` may"),
        (np.zeros(2).view(np.recarray), "type `recarray` may mean"),
        (np.timedelta64(3, "s"), "type `timedelta64` is not a value"),
        (Meters(2.0), "type `Meters` is not a value"),
    ],
    ids=str,
)
def test_an_argument_that_is_no_value_is_refused(argument: Any, message: str) -> None:
    """Also where calls with a float go to the machine code at once."""
    made = native.function(lambda x: x * 2.0, engine="interpreter")
    for again in (False, True):
        with pytest.raises(GradientTypeError, match=message):
            made(argument)
        assert again or made(1.0) == 2.0


def cube(x):
    return x**3


WRONG_CALLS: list[tuple[str, type[Exception], str]] = [
    ("native.function(math.sin)", GradientTypeError, "is not a Python function"),
    ("native.grad(math.sin)", GradientTypeError, "is no Python function that could be"),
    ("native.grad(cube, -1)", PlanError, "`argnums=-1` names no arguments"),
    ("native.grad(cube, (0, 0))", PlanError, "names an argument twice"),
    ("native.jvp(cube, (1.0,), (A,))", GradientTypeError, "a tangent for each primal"),
    (
        "native.jvp(cube, (4.0,), (1.0, 1.0))",
        GradientTypeError,
        "a tangent for each primal, or `None`",
    ),
    ("native.jvp(cube, (A,), (A[:2],))", GradientTypeError, "a tangent of shape"),
    (
        "native.grad(swap)(1.0, 2.0, 3)",
        CompileError,
        "a gradient is of a function that",
    ),
    ("native.grad(cube)(True)", CompileError, "and no derivative is taken"),
    (
        "native.grad(gathered, (0, 1))(A, PLACES)",
        CompileError,
        "choose others with `argnums`",
    ),
    (
        "native.vjp(cube, (True,), 1.0)",
        GradientTypeError,
        "argument 0 is a bool.*`argnums`",
    ),
    ("native.vjp(cube, (2.0,), A)", CompileError, "the function returns a float, and"),
    (
        "native.vjp(cube, (4.0,), 1.0, argnums=(1,))",
        PlanError,
        "there are 1 primals, counted from 0",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), WRONG_CALLS)
def test_a_derivative_that_cannot_be_is_refused(
    call: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        eval(call, {**globals(), **vars(corpus)})


@pytest.mark.slow
@pytest.mark.parametrize("make", [native.function, native.grad])
def test_a_function_that_is_too_long_is_refused_by_name(
    make: Any, tmp_path: Path
) -> None:
    """Each statement stands in the one before it; the passes recurse through them."""
    text = "def long(x):\n" + "    x = x + 0.5 * x\n" * 4000 + "    return x\n"
    long = loaded(tmp_path, "too_long", text).long
    with pytest.raises(CompileError, match="split it into several functions"):
        make(long)(0.5)
