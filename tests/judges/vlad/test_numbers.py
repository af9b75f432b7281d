"""Numbers of all types through each operator and function: Python's value and type.

Or refused by name, and an error wherever Python has one.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import native
from tests.judges.vlad.judging import loaded, right_or_refused

OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<", "==", "!=")

LEFT: tuple[Any, ...] = (3, -3, 0, True, False, 2.5, -2.5, 0.0, 10**8)
RIGHT: tuple[Any, ...] = (2, -2, 0, 1, True, 2.0, -2.0, 0.5, 0.0, 1.0, 3)

OF_ONE = (
    "-a", "+a", "not a", "abs(a)", "int(a)", "float(a)", "bool(a)", "math.floor(a)",
    "math.ceil(a)", "math.trunc(a)", "math.sqrt(a)", "math.fabs(a)", 
    "math.exp(0.1 * a)",
    "math.isnan(a)", "math.isfinite(a)", "np.abs(a)", "np.sqrt(a)", "np.sin(a)",
    "np.float64(a)", "math.atan(a)", "math.degrees(a)", "np.arctan(a)", "np.tanh(a)",
    "math.tanh(a)", "a ** 2", "a ** 2.0", "a ** 0", "a ** 0.0", "a ** 3", "a ** 3.0",
    "a ** 1", "a ** 1.0", "a ** -1", "a ** -2", "a ** True", "2 ** a", "2.0 ** a",
    "pow(a, 2)", "pow(a, 2.0)", "a // 2.0", "a % 2.0", "a * 1.0", "a + 0.0", "a == 2.0",
    "(a ** 2.0) // 3", "a * True", "a - a", "a < 1 < 2.0", "float(int(a))", "round(a)",
)  # fmt: skip

OF_TWO = (
    "pow(a, b)", "math.pow(a, b)", "np.minimum(a, b)", "np.maximum(a, b)",
    "math.atan2(a, b)", "math.hypot(a, b)", "np.power(a, b)", "np.arctan2(a, b)",
    "min(a, b) + 0.0", "max(a, b) * 1.0", "divmod(a, b)", "math.fmod(a, b)",
    "a < b or a == b", "math.log(3 + abs(a), 5)",
)  # fmt: skip

SIZES: tuple[Any, ...] = (
    3, 0, -1, True, 2.0, 2.5, None, (2,), (2.0,), (2, 3), (2, 3.0), (2.0, 3), (),
    (2, 0), (1, 2, 3),
)  # fmt: skip

CONSTRUCTORS = (
    "np.zeros(n)", "np.ones(n)", "np.full(n, 2)", "np.full(n, 2.5)", "np.full(n, 0.5)",
    "np.zeros((n, 2))", "np.ones((2, n))", "np.zeros(n)[0]", "len(np.zeros(n))",
    "np.zeros(n).shape", "np.ones(n).size", "np.ones(n).sum()",
)  # fmt: skip

PLACES_OF_INDEX = ("a[n]", "a[n ** 2.0]", "a[n / 1]", "a[n // 1]", "a[int(n)]",
    "a[n * 1.0]", "a[n - 1]", "a[-n]", "a[n % 2]", "a[abs(n)]", "a[float(n)]",
    "a[n ** 2]", "a[n + 0.0]", "a[n == 1]", "a[i[n]]", "i[n] / 2", "a[i[n] - 1]",
    "len(i) + i[0]", "i", "i[0] ** 2", "i.size", "i[0] // 2", "i + 1", "i.sum()",
)  # fmt: skip

CHOSEN = (
    "n if x > 0 else x", "n if x > 9 else x", "x if x > 9 else n", "(n, x)",
    "(n if x > 0 else n + 1, x)", "n if x > 0 else (x if x > -9 else n)",
    "either(x, n)", "either(-x, n)", "either(-x, either(x, n))",
    "either(x, n) if x > 9 else n", "pairs(x, n)",
    "pairs(-x, n)", "pairs(x, n) if x > 9 else (x, (x, n))", "again(x, n)",
    "again(-x, n)",
    "(lambda y: n if y > 0 else y)(x)", "(lambda y: n if y > 0 else y)(-x)",
    "turn(x, n)", "turn(-x, n)", "none(x, n)", "none(-x, n)", "ended(x, n)",
    "ended(-x, n)", "inner(x, n)", "inner(-x, n)",
)  # fmt: skip

HEAD = """
import math
import numpy as np
from tests.judges.vlad.corpus import an_int_or_a_float as either
from tests.judges.vlad.corpus import pairs_of_either as pairs


def again(x, n):
    return either(x, n) if n < 2 else again(x, n - 1)


def turn(x, n):
    return x if n == 0 else back(x, n - 1)


def back(x, n):
    return n if x > 0 else turn(x, n)


def none(x, n):
    if x > 0:
        return
    return None


def ended(x, n):
    for i in range(n):
        if x > 0:
            return i
    return x


def inner(x, n):
    def same(y):
        return n if y > 0 else y

    return same(x)

"""


def _functions(
    folder: Path, parameters: str, expressions: tuple[str, ...]
) -> list[Any]:
    made = [
        f"def f{k}({parameters}):\n    return {each}\n"
        for k, each in enumerate(expressions)
    ]
    module = loaded(folder, "numbers_", HEAD + "\n\n".join(made))
    return [getattr(module, f"f{k}") for k in range(len(expressions))]


def asked(functions: list[Any], calls: list[tuple[Any, ...]]) -> list[bool]:
    """Ask each function for each call; which were refused."""
    return [
        isinstance(right_or_refused(f, args), native.CompileError)
        for f in functions
        for args in calls
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_of_two_numbers(tmp_path: Path) -> None:
    expressions = tuple(f"a {op} b" for op in OPERATORS)
    functions = _functions(tmp_path, "a, b", expressions)
    refused = asked(functions, [(a, b) for a in LEFT for b in RIGHT])
    assert not any(refused)


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_with_a_constant(op: str, tmp_path: Path) -> None:
    functions = _functions(tmp_path, "a", tuple(f"a {op} ({b!r})" for b in RIGHT))
    assert not any(asked(functions, [(a,) for a in LEFT]))


@pytest.mark.parametrize("expression", OF_ONE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_a_number(expression: str, tmp_path: Path) -> None:
    refused = asked(_functions(tmp_path, "a", (expression,)), [(a,) for a in LEFT])
    assert all(refused) if "round" in expression else not all(refused)


AT_EDGES = (
    "math.sqrt(x)", "math.log(x)", "math.sin(x)", "math.tan(x)", "math.asin(x)",
    "math.exp(x)", "math.log1p(x)", "math.hypot(x, y)",
    "float(np.minimum(x, y)) + float(np.maximum(y, x))",
)  # fmt: skip
EDGES = (math.inf, -math.inf, math.nan, 0.0, -0.0, -1.0, 1e200, 1e308, 5e-324)


def outcome(f: Any, *args: Any) -> Any:
    try:
        return f(*args)
    except (ValueError, OverflowError, native.RunError):
        return "stops"


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_infinities_stop_a_function_or_go_through_it(
    engine: Any, tmp_path: Path
) -> None:
    """A hypotenuse neither overflows nor vanishes."""
    for f in _functions(tmp_path, "x, y", AT_EDGES):
        made = native.function(f, engine=engine)
        for x, y in itertools.product(EDGES, EDGES):
            expected = outcome(f, x, y)
            if expected != "stops":  # in every bit, the sign of a zero is one
                expected = pytest.approx(expected, rel=1e-15, abs=0.0, nan_ok=True)
                assert math.copysign(1.0, made(x, y)) == math.copysign(1.0, f(x, y))
            assert outcome(made, x, y) == expected, (x, y)


@pytest.mark.parametrize("expression", OF_TWO)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_two_numbers(expression: str, tmp_path: Path) -> None:
    calls = [(a, b) for a in LEFT for b in RIGHT]
    refused = asked(_functions(tmp_path, "a, b", (expression,)), calls)
    is_outside = expression.startswith(("divmod", "math.fmod"))
    assert all(refused) if is_outside else not all(refused)


@pytest.mark.parametrize("expression", CONSTRUCTORS)
def test_arrays_of_all_sizes(expression: str, tmp_path: Path) -> None:
    refused = asked(_functions(tmp_path, "n", (expression,)), [(n,) for n in SIZES])
    makes_ints = expression == "np.full(n, 2)"
    assert all(refused) if makes_ints else not all(refused)


@pytest.mark.parametrize("expression", PLACES_OF_INDEX)
def test_what_may_be_an_index(expression: str, tmp_path: Path) -> None:
    a, i = np.arange(9.0), np.array([2, 0, 1])
    refused = asked(
        _functions(tmp_path, "a, i, n", (expression,)), [(a, i, 2), (a, i, 1)]
    )
    assert len(refused) == 2


@pytest.mark.parametrize("expression", CHOSEN)
def test_what_different_ways_return(expression: str, tmp_path: Path) -> None:
    """Each way has the type that it has in Python."""
    calls: list[tuple[Any, ...]] = [(1.5, 3), (-1.5, 3), (1.5, 2.0), (0.0, 0)]
    calls = calls[:2] if "ended" in expression else calls  # `range` of a float
    refused = asked(_functions(tmp_path, "x, n", (expression,)), calls)
    assert not any(refused)
