"""Compiled programs that have generated derivatives, against the interpreter."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import retape
from retape import native, vlad

PROGRAMS = {
    "an infinite partial of an adjoint of zero": (
        "(define (f@ x) (+ x (* 0 (sqrt x)))) (define (g@ x) (*j f@ x 1))",
        0.0,
    ),
    "an old version of a vector": (
        "(define (f@ x) (let* ((v (make-vector 2 x)) (w (vector-set v 0 (* x x))))"
        " (+ (vector-ref v 0) (vector-ref w 0)))) (define (g@ x) (*j f@ x 1))",
        3.0,
    ),
    "a vector": (
        "(define (f@ x) (let loop ((i 0) (v (make-vector 3 x))) (if (< i 3)"
        " (loop (+ i 1) (vector-set v i (* x (+ i (vector-ref v i)))))"
        " (* (vector-ref v 1) (vector-ref v 2))))) (define (g@ x) (*j f@ x 1))",
        3.0,
    ),
    "a tuple in a state twice": (
        "(define (f@ (cons a b)) (let loop ((i 0) (p (cons a b)) (q (cons b a)))"
        " (if (< i 30) (let ((p2 (cons (+ i i) 2))) (loop (+ i 1) q p))"
        " (let (((cons x y) p) ((cons z w) q)) (* (* x y) (+ z (* w x)))))))"
        " (define (g@ x) (checkpoint-*j f@ (cons x 2) 1))",
        3.0,
    ),
    "a deep recursion": (
        "(define (f@ x) (if (< x 1) x (+ (* x x) (f@ (- x 0.5)))))"
        " (define (g@ x) (checkpoint-*j f@ x 1))",
        20.0,
    ),
    "the end of a state in the middle of a return": (
        "(define (h@ x n) (if (= n 0) (* x x) (h@ (* x 1.01) (- n 1))))"
        " (define (f@ x) (+ (h@ x 3) (* 2 (h@ (h@ x 2) 4))))"
        " (define (g@ x) (checkpoint-*j f@ x 1))",
        1.5,
    ),
    "extremes, powers, remainders": (
        "(define (f@ x) (+ (min x (* x x)) (+ (max (expt x 3) 2) (abs (- 0 x)))))"
        " (define (g@ x) (checkpoint-*j f@ x 1))",
        2.5,
    ),
    "a derivative of a derivative": (
        "(define (f@ x) (* x (* x x))) (define (cdr@ (cons a b)) b)"
        " (define (d@ x) (cdr@ (*j f@ x 1))) (define (g@ x) (checkpoint-*j d@ x 1))",
        2.0,
    ),
}


@pytest.mark.slow("1000000")
@pytest.mark.parametrize("stage", [10**6, 7])
def test_programs_give_the_same_bits(stage: int) -> None:
    """In one stage, and in many short ones, which begin and end anywhere."""
    plan = retape.logarithmic(stage=stage)
    text = "\n".join(
        program.replace("@", str(i)) for i, (program, _) in enumerate(PROGRAMS.values())
    )
    interpreted = vlad.compile(text, engine="interpreter", plan=plan)
    compiled = vlad.compile(text, plan=plan)
    for i, (name, (_, x)) in enumerate(PROGRAMS.items()):
        assert compiled[f"g{i}"](x) == interpreted[f"g{i}"](x), name


def told(function: Any, *args: float) -> Any:
    """What a function gives in all its digits, or the first lines of its fault."""
    try:
        return repr(function(*args))
    except retape.LanguageError as error:
        return str(error).splitlines()[:3]


FAULTS = {
    "in a loop": (
        "(define (f x) (let loop ((i 0) (x x)) (if (< i 5) (loop (+ i 1) "
        "(* x (vector-ref (make-vector 3 x) i))) x)))",
        (2.0,),
    ),
    "an index": (
        "(define (f x) (* x (vector-ref (make-vector 3 x) x)))",
        (
            0.0, -0.0, 2.0, -1.0, -0.5, 0.5, 3.0, 2.0**32, 2.0**64, -(2.0**64), 1e300,
            math.inf, math.nan,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_told_in_the_same_words(name: str) -> None:
    text, points = FAULTS[name]
    text += " (define (g x) (*j f x 1))"
    compiled, interpreted = vlad.compile(text), vlad.compile(text, engine="interpreter")
    for x in points:
        assert told(compiled["g"], x)[:2] == told(interpreted["g"], x)[:2], x


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
        found = told(compiled["g"], a, b)
        assert found == told(interpreted["g"], a, b), (a, b)


def counted(x: float, start: int, steps: int) -> float:
    row = np.zeros(3)
    i = start
    for _ in range(steps):
        row[i % 3] += x
        row[(2 * i) % 3] -= 0.5 * x
        i += 1
    return row[0] + 2.0 * row[1]


def outcome(function: Any, *args: float) -> Any:
    try:
        return repr(function(*args))
    except native.RunError as error:
        return error.message


@pytest.mark.parametrize("start", [0, -5, 2**53 - 2, -(2**53)])
def test_an_integer_above_2_to_53_is_refused_in_its_line(start: int) -> None:
    other = native.function(counted, engine="interpreter")
    compiled = native.function(counted)
    for steps in (0, 1, 2, 3, 8):
        args = 0.7, start, steps
        assert outcome(compiled, *args) == outcome(other, *args)


def large(count: int) -> str:
    each = "(define (f{0} x) (if (< x {0}) (f{0} (+ (sin x) {0})) (* x {0})))"
    made = "\n".join(each.format(i) for i in range(count))
    terms = "".join(f" (f{i} x))" for i in range(count))
    body = f"{'(+ ' * count}0{terms}"
    return f"{made}\n(define (h x) {body})\n(*j h 1 1)\n(checkpoint-*j h 1 1)\n(h 1)"


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_programs_of_many_functions(count: int) -> None:
    """Of 100, the C code is in several functions and files."""
    found = [vlad.run(large(count), engine=e) for e in ("compiled", "interpreter")]
    for one, other in zip(*(each.values for each in found), strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    assert found[0].steps == found[1].steps
