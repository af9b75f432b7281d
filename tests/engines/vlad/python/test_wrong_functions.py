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
from tests.judges.vlad.corpus import gathered, swap
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


def prints(x):
    print((x, x))


def two_kinds(x):
    y = (x, x) if x > 0 else x
    return y


def maybe_unbound(x):
    if x > 0:
        y = 1.0
    return y


def unbound_after_loop(n):
    for i in range(n):
        y = i
    return y


def shadows_a_global(x):
    if x > 100:
        A = x
    return A


def raises(x):
    raise ValueError from TypeError()


def forever(x):
    return forever(x)


def starred(*xs):
    return 1.0


def named(x, *, y=2.0):
    return x * y


def generated(x):
    yield x


async def awaited(x):
    return x


TABLE = {0: 1}

REFUSED: list[Row] = [
    (prints, (1.0,), "a tuple of 2 is not printed here; print numbers", "(x, x)"),
    (two_kinds, (1.0,), "a tuple of 2 on one way and a float on another", "(x, x)"),
    (maybe_unbound, (1.0,), "`y` has no value here on some way", "y"),
    (unbound_after_loop, (1,), "`y` has no value here on some way", "y"),
    (shadows_a_global, (1.0,), "`A` has no value here on some way", "A"),
    (lambda x: "a", (1.0,), "a str is not a value of a compiled function", '"a"'),
    (lambda x: x.real, (1.0,), "`.real` of a float is not compiled", "x.real"),
    (lambda x: x + undefined, (1.0,), "`undefined` has no value here", "undefined"),  # noqa: F821
    (raises, (1.0,), "`from` and keyword arguments are not compiled", "raise"),
    (lambda x: TABLE[0] + x, (1.0,), "`TABLE` is a dict, which is not", "TABLE"),
    (forever, (1.0,), "this function never returns", "def forever"),
    (starred, (), "`*` among parameters is not compiled", "def starred"),
    (named, (1.0,), "among parameters", "def named"),
]


@pytest.mark.parametrize(("f", "args", "message", "text"), REFUSED)
def test_what_is_outside_the_subset_is_refused_with_its_line(
    f: Any, args: tuple[Any, ...], message: str, text: str
) -> None:
    with pytest.raises(CompileError, match=re.escape(message)) as caught:
        native.function(f, engine="interpreter")(*args)
    located(caught, text)


@pytest.mark.parametrize("f", [generated, awaited])
def test_a_function_that_gives_no_value_is_refused_by_name(f: Any) -> None:
    with pytest.raises(CompileError, match=rf"`{f.__name__}` is a generator or a cor"):
        native.function(f, engine="interpreter")(1.0)


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


WRONG_CALLS: list[tuple[Any, type[Exception], str]] = [
    (lambda: native.function(math.sin), GradientTypeError, "is not a Python function"),
    (lambda: native.grad(math.sin), GradientTypeError, "is no Python function that"),
    (lambda: native.grad(cube, -1), PlanError, "`argnums=-1` names no arguments"),
    (lambda: native.grad(cube, (0, 0)), PlanError, "names an argument twice"),
    (
        lambda: native.jvp(cube, (1.0,), (np.ones(2),)),
        GradientTypeError,
        "a tangent for each primal",
    ),
    (
        lambda: native.jvp(cube, (4.0,), (1.0, 1.0)),
        GradientTypeError,
        "a tangent for each primal, or `None`",
    ),
    (
        lambda: native.jvp(cube, (np.ones(3),), (np.ones(2),)),
        GradientTypeError,
        "a tangent of shape",
    ),
    (
        lambda: native.grad(swap, engine="interpreter")(1.0, 2.0, 3),
        CompileError,
        "a gradient is of a function that",
    ),
    (
        lambda: native.grad(cube, engine="interpreter")(True),
        CompileError,
        "and no derivative is taken",
    ),
    (
        lambda: native.grad(gathered, (0, 1), engine="interpreter")(A, PLACES),
        CompileError,
        "choose others with `argnums`",
    ),
    (
        lambda: native.vjp(cube, (True,), 1.0),
        GradientTypeError,
        "argument 0 is a bool.*`argnums`",
    ),
    (
        lambda: native.vjp(cube, (2.0,), np.ones(2), engine="interpreter"),
        CompileError,
        "the function returns a float, and",
    ),
    (
        lambda: native.vjp(cube, (4.0,), 1.0, argnums=(1,)),
        PlanError,
        "there are 1 primals, counted from 0",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), WRONG_CALLS)
def test_a_derivative_that_cannot_be_is_refused(
    call: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


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
