"""What a refusal says to write is written, and it does what it says."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from retape import native
from tests.judges.vlad.judging import REFUSED, alike, judge

# pyright: basic


def gather(a, idx):
    s = 0.0
    for i in range(len(idx)):
        s = s * 0.7 + a[idx[i]]
    return s


def shifted(a, idx):
    return a[0] * (idx + 1).sum()


def shifted_as_advised(a, idx):
    return a[int((idx + 1)[0])]


def sized(x, n):
    return np.zeros(n).size + x


def sized_as_advised(x, n):
    return np.zeros(int(n)).size + x


def filled(x, n):
    return np.full(n, 2).sum() * x


def filled_as_advised(x, n):
    return np.full(n, 2.0).sum() * x


def filled_with_a_float(x, n):
    return np.full(n, float(2)).sum() * x


def picked(a, x):
    return a[x]


def picked_as_advised(a, x):
    return a[int(x)]


def least(x, n):
    return min(x, n > 1)


def least_as_advised(x, n):
    return min(x, float(n > 1))


def listed(x):
    a = [x, x * x]
    return a[0] + a[1]


def listed_as_advised(x):
    a = (x, x * x)
    return a[0] + a[1]


def listed_as_an_array(x):
    a = np.zeros(2)
    for i in range(2):
        a[i] = x ** (i + 1)
    return a[0] + a[1]


def latest(x):
    f = lambda y: x * y  # noqa: E731
    x = 2.0
    return f(x)


def latest_as_advised(x):
    f = lambda y, x=x: x * y  # noqa: E731
    x = 2.0
    return f(x)


def apart(x, n):
    def even(k):
        return x if k == 0 else odd(k - 1)

    half = 0.5 * x

    def odd(k):
        return half if k == 0 else even(k - 1)

    return even(n)


def together(x, n):
    half = 0.5 * x

    def even(k):
        return x if k == 0 else odd(k - 1)

    def odd(k):
        return half if k == 0 else even(k - 1)

    return even(n)


def by_lambda(x, n):
    even = lambda k: x if k == 0 else odd(k - 1)  # noqa: E731
    odd = lambda k: -x if k == 0 else even(k - 1)  # noqa: E731
    return even(n)


def walrus(x):
    return (y := x * x) + y


def walrus_as_advised(x):
    y = x * x
    return y + y


def sliced(a):
    return a[1:].sum()


def sliced_as_advised(a):
    s = 0.0
    for i in range(1, len(a)):
        s += a[i]
    return s


def over_what_changes(a):
    a = a.copy()
    s = 0.0
    for x in a:
        a[0] = 1.0
        s += x
    return s


def over_places(a):
    a = a.copy()
    s = 0.0
    for i in range(len(a)):
        a[0] = 1.0
        s += a[i]
    return s


def truth(x, n):
    return x if n and x else 2.0 * x


def truth_as_advised(x, n):
    return x if n != 0 and x != 0 else 2.0 * x


def cube(x):
    return x**3


def derived_inside(x):
    return native.grad(cube)(x)


SLOPE = native.grad(cube)


def derived_outside(x):
    return SLOPE(x)


TWO, THREE = np.array([2, 0]), np.arange(3.0)

ADVICE: list[tuple[Callable[..., Any], tuple[Any, ...], str, Callable[..., Any]]] = [
    (shifted, (THREE, TWO), "take `int(a[i])`", shifted_as_advised),
    (sized, (1.5, 3.5), "use `int(n)`", sized_as_advised),
    (filled, (1.5, 3), "as a float", filled_as_advised),
    (filled, (1.5, 3), "`float(x)`", filled_with_a_float),
    (picked, (THREE, 1.5), "use `int(x)`", picked_as_advised),
    (least, (1.5, 3), "`float(x)`", least_as_advised),
    (listed, (1.5,), "use a tuple", listed_as_advised),
    (listed, (1.5,), "`numpy.zeros(n)` that a loop fills", listed_as_an_array),
    (latest, (1.5,), "by a default: `x=x`", latest_as_advised),
    (apart, (1.5, 3), "write its `def` directly before or after", together),
    (by_lambda, (1.5, 3), "write its `def` directly before or after", together),
    (walrus, (1.5,), "assign the variable in a line of its own", walrus_as_advised),
    (sliced, (THREE,), "write a loop over the items", sliced_as_advised),
    (over_what_changes, (THREE,), "loop over `range(len(a))`", over_places),
    (truth, (1.5, 3), "compare this with 0", truth_as_advised),
    (derived_inside, (1.5,), "make the derivative outside", derived_outside),
]


@pytest.mark.slow("shifted-args0-take `int(a[i])`-shifted_as_advised")
@pytest.mark.parametrize(("f", "args", "says", "advised"), ADVICE)
def test_what_is_advised_is_compiled(f, args, says, advised) -> None:
    with pytest.raises(native.CompileError) as caught:
        native.function(f, engine="interpreter")(*args)
    assert says in str(caught.value)
    if advised is shifted_as_advised:
        args = args[0], args[1].astype(float)
        with pytest.raises(IndexError):
            args[0][args[1][0]]
        judge(lambda a, i: a[int((i + 1)[1])], args, (0,))
        return
    judge(advised, args, tuple(k for k, a in enumerate(args) if type(a) is float))


def test_an_array_of_ints_is_read_as_it_is() -> None:
    judge(gather, (np.arange(4.0), np.array([0, 2, 1])), by=(0,))
    table = np.array([[0, 1], [1, 0]])
    judge(lambda a, t: a[t[1, 0]] * t[0, 1] + t[-1, -1], (np.ones(2), table), by=(0,))
    judge(lambda t: (t, t.shape, len(t)), (table,))


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2], np.int32),
        np.array([1, 2], np.float32),
        np.array([1, 2**60]),
        np.array([-(2**63), 0]),
        np.array([True, False]),
    ],
    ids=str,
)
def test_an_array_of_another_type_is_right_as_a_float(array: Any) -> None:
    def first(a):
        return a[0] * 0.5

    with pytest.raises(REFUSED, match=r"pass\s+`a.astype\(float\)`"):
        native.function(first, engine="interpreter")(array)
    judge(first, (array.astype(float),), by=())


def test_an_array_of_ints_has_no_derivative() -> None:
    args = np.arange(4.0), np.array([0, 2, 1])
    with pytest.raises(native.CompileError, match="choose others with `argnums`"):
        native.grad(gather, (0, 1), engine="interpreter")(*args)
    found = native.grad(gather, 0, engine="interpreter")(*args)
    assert alike(found, np.array([0.7**2, 1.0, 0.7, 0.0]))
    _, (again,) = native.vjp(gather, args, 1.0, argnums=(0,), engine="interpreter")
    assert alike(again, found)


def nested(depth: int) -> str:
    test = "x > 0.5"
    for i in range(depth):
        test = f"(x < {i} {'and' if i % 2 else 'or'} {test})"
    return f"def f(x):\n    return 1.0 if {test} else math.sin(x)\n"


def test_conditions_within_conditions_take_no_longer_than_they_are(tmp_path) -> None:
    """Of 40 levels, each twice as long as the one within it, none would end."""
    from tests.judges.vlad.judging import loaded

    made = loaded(tmp_path, "nested", "import math\n\n\n" + nested(40))
    for x in (0.3, 7.5, -1.0):
        assert native.function(made.f, engine="interpreter")(x) == made.f(x)
    assert math.isfinite(made.f(0.3))
