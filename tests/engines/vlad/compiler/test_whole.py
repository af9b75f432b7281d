"""Places of vectors as integers in C: what nobody can tell from doubles."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from benchmarks.native import functions as ten

from retape import native, vlad
from retape.engines.vlad.compiler.typed._form import Register
from retape.engines.vlad.compiler.typed._whole import is_whole_constant

PLACES = {
    "product": "(* a b)",
    "sum of products": "(+ (* a b) (* b a))",
    "difference of products": "(- (* a b) (* b b))",
    "negative product": "(- 0 (* a b))",
    "product and a constant": "(+ (* a b) 0)",
    "checked by a floor": "(+ (floor (+ a 0)) b)",
    "sum": "(+ a b)",
    "large": "(- (+ (* a 9007199254740992) 1) (* a 9007199254740992))",
}
"""Places that are computed of two numbers from outside."""

NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 2.0**53, 1e300, math.inf, math.nan)


def _outcome(function: Any, *args: float) -> Any:
    try:
        return repr(function(*args))
    except native.RunError as error:
        return error.message


@pytest.mark.parametrize("name", PLACES)
def test_the_sign_of_a_zero_and_what_is_no_integer_are_as_they_were(name: str) -> None:
    """The angle tells a zero from its negative, before and after a place is one."""
    place = PLACES[name]
    text = (
        "(define (g a b) (*j (lambda (x) (let* ((v (make-vector 3 x))"
        f" (p {place}) (y (vector-ref v p)) (w (vector-set v p (* y y))))"
        " (+ (+ (* x (atan p -1)) (vector-ref w p)) (atan a -1)))) 1.5 1))"
    )
    compiled, interpreted = vlad.compile(text), vlad.compile(text, engine="interpreter")
    for a, b in itertools.product(NUMBERS, NUMBERS):
        found = _outcome(compiled["g"], a, b)
        assert found == _outcome(interpreted["g"], a, b), (a, b)


def turned(x: float, a: int, b: int) -> float:
    row = np.full(3, x)
    p, q = a * b, b * a - a * b
    first = row[p % 3] * math.atan2(p, -1.0) + math.atan2(-p, -1.0)
    return first + row[q] * math.atan2(p + q, -1.0) + math.atan2(q - p, -1.0)


def test_no_int_is_a_negative_zero() -> None:
    compiled = native.function(turned)
    for a, b in itertools.product(range(-3, 4), range(-3, 4)):
        assert compiled(0.7, a, b) == turned(0.7, a, b), (a, b)


def counted(x: float, start: int, steps: int) -> float:
    row = np.zeros(3)
    i = start
    for _ in range(steps):
        row[i % 3] += x
        row[(2 * i) % 3] -= 0.5 * x
        i += 1
    return row[0] + 2.0 * row[1]


@pytest.mark.parametrize("start", [0, -5, 2**53 - 2, -(2**53)])
def test_an_integer_above_2_to_53_is_refused_in_its_line(start: int) -> None:
    other = native.function(counted, engine="interpreter")
    compiled = native.function(counted)
    for steps in (0, 1, 2, 3, 8):
        args = 0.7, start, steps
        assert _outcome(compiled, *args) == _outcome(other, *args)


def test_what_is_counted_with_places_is_an_integer() -> None:
    """And the counters of a loop over an array, as far as its length."""
    made = native.function(ten.adaptive_grid)
    args, _ = ten.SMALL[ten.adaptive_grid]
    assert made(*args) == ten.adaptive_grid(*args)
    ((compiled),) = made._made.values()
    engine: Any = compiled.engine
    text = engine.compiled.text
    assert "ROW_WHOLE_PLACE" in text
    assert "ROW_PLACE" not in text
    assert text.count("int64_t d") >= 10


def test_a_float_beside_a_place_is_no_integer() -> None:
    """What is only compared with a place is not demanded to be whole."""

    def below(x: float, end: float) -> float:
        row = np.full(8, x)
        i, total = 0, 0.0
        while i < end:
            total += row[i] * i
            i += 1
        return total

    made = native.value_and_grad(below, (0,))
    assert made(2.0, 3.5) == (12.0, (6.0,))
    (compiled,) = made._made.values()
    engine: Any = compiled.engine
    assert engine.native.typed_stages() == (1, 0)


def test_constants() -> None:
    whole = [0.0, 1.0, -3.0, 2.0**53]
    others = [-0.0, 0.5, math.nan, math.inf, 2.0**54, True, Register("x", "d")]
    assert [is_whole_constant(each) for each in whole] == [True] * 4
    assert not any(is_whole_constant(each) for each in others)
