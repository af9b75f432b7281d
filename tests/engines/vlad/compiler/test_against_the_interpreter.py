"""Compiled programs with generated derivatives: the interpreter, and differences."""

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

import retape
from retape import native, vlad
from tests.engines.vlad.support.cases import functions, program
from tests.engines.vlad.support.seams import compile_with
from tests.judges.pairwise import dealt

AT = [0.4, -0.7, 0.9, 0.25, 1.1]


def _flat(value: Any) -> list[float]:
    if isinstance(value, list | tuple):
        return [number for part in value for number in _flat(part)]
    return [value]


def _like(value: Any, numbers: list[float]) -> Any:
    """These numbers as what a value is: one, or a list, or a tuple."""
    return type(value)(numbers) if isinstance(value, list | tuple) else numbers[0]


def _derived(text: str, count: int) -> str:
    """A program with both derivatives of its functions `f0`, `f1`, ..."""
    lines = [program("lists"), text]
    for i in range(count):
        for op, name in (("checkpoint-*j", "c"), ("*j", "r")):
            lines.append(f"(define ({name}{i} x) ({op} f{i} x 1))")
    return "\n".join(lines)


def _differences(f: Any, at: Any) -> list[float]:
    numbers, h = _flat(at), 1e-5

    def moved(k: int, by: float) -> float:
        return f(_like(at, [x + by * (i == k) for i, x in enumerate(numbers)]))

    return [(moved(k, h) - moved(k, -h)) / (2 * h) for k in range(len(numbers))]


@pytest.mark.parametrize(
    ("file", "stage"),
    dealt(["typed_numbers", "typed_lists", "general_lists"], [10**6, 61, 7]),
)
def test_programs_have_the_interpreters_gradients(file: str, stage: int) -> None:
    """In one stage and in many, which begin and end in the midst of anything."""
    text, made = functions(file)
    plan, text = retape.logarithmic(stage=stage), _derived(text, len(made))
    interpreted = vlad.compile(text, engine="interpreter", plan=plan)
    compiled = vlad.compile(text, plan=plan)
    for i, (name, at) in enumerate(made):
        for derivative in (f"c{i}", f"r{i}"):
            found = _flat(compiled[derivative](at))
            expected = _flat(interpreted[derivative](at))
            np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)
            assert found == expected or "list" in file, name
        if at != 0.0:
            differences = _differences(interpreted[f"f{i}"], at)
            np.testing.assert_allclose(found[1:], differences, rtol=1e-5, atol=1e-7)


def _random_list(pick: random.Random, lists: list[str], depth: int) -> str:
    if depth == 0:
        return pick.choice(lists)
    one, two = (_random_list(pick, lists, depth - 1) for _ in range(2))
    number = pick.choice(("0.5", "2", "(* 0.1 (sum x))", "(sqrt (+ 2 (sumsq y)))"))
    return pick.choice(
        (
            f"(map1 {one} {number})",
            f"(turn {number} {one})",
            f"(back {one} {two})",
            f"(join {one} {two})",
            f"(plus {one} {two})",
            f"(some {one})",
            f"(first 4 {one})",
            f"(cons {number} {one})",
            f"(if (null? {one}) {two} (cons (car {one}) {two}))",
        )
    )


def _random_program(seed: int) -> str:
    pick = random.Random(seed)
    new = [_random_list(pick, ["x", "y", "z", "'()"], 2) for _ in range(3)]
    return (
        "(define (f@ w) (let loop ((i 0) (x w) (y (cdr w)) (z w))"
        f" (if (= i {pick.randint(2, 4)})"
        " (+ (sum (map1 x 1)) (* 0.1 (+ (sum (map1 y 2)) (sum (map1 z 0.3)))))"
        f" (loop (+ i 1) (first 7 {new[0]}) (first 6 {new[1]}) (first 5 {new[2]})))))"
    )


@pytest.mark.slow
def test_random_programs_on_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are let in, and cells that are dead are freed, all the time."""
    compile_with(
        monkeypatch,
        "-DSLICE=40",
        "-DBLOCK_SLACK=((size_t)0)",
        "-DBLOCK_CELLS=((size_t)3)",
    )
    programs = [_random_program(i).replace("@", str(i)) for i in range(12)]
    text = _derived("\n".join(programs), len(programs))
    interpreted = vlad.compile(text, engine="interpreter")
    expected = [_flat(interpreted[f"r{i}"](AT)) for i in range(len(programs))]
    for stage in (10**6, 997, 83):
        compiled = vlad.compile(text, plan=retape.logarithmic(stage=stage))
        for i, gradient in enumerate(expected):
            found = _flat(compiled[f"c{i}"](AT))
            np.testing.assert_allclose(found, gradient, rtol=1e-9, atol=1e-12)
    for i, gradient in enumerate(expected[:4]):
        differences = _differences(compiled[f"f{i}"], AT)
        np.testing.assert_allclose(gradient[1:], differences, rtol=1e-4, atol=1e-6)


def test_adjoints_that_overflow_and_infinite_items() -> None:
    """No number is what the general way finds, too, unless an item was infinite."""
    text = program("lists") + (
        "(define (f x) (let loop ((i 0) (l (cons x '()))) (if (= i 5000) (car l)"
        " (loop (+ i 1) (cons (* 4 (* (car l) (- 1 (car l)))) '())))))"
        " (define (big x n) (if (= n 0) '()"
        " (cons (* 1e200 (* 1e200 x)) (big x (- n 1)))))"
        " (define (finite l x) (if (null? l) x (let* ((y (* (car l) x))"
        " (z (finite (cdr l) x))) (if (> y 1e300) z (+ y z)))))"
        " (define (k x) (finite (big x 3) x))"
        " (define (rf x) (*j f x 1)) (define (rk x) (*j k x 1))"
    )
    compiled, interpreted = vlad.compile(text), vlad.compile(text, engine="interpreter")
    for name in ("rf", "rk"):
        found, expected = compiled[name](0.3), interpreted[name](0.3)
        assert repr(found) == repr(expected), name


def told(function: Any, *args: Any) -> Any:
    """What a function gives in all its digits, or the first lines of its fault."""
    try:
        return repr(function(*args))
    except retape.LanguageError as error:
        return str(error).splitlines()[:3]


FAULTS: dict[str, tuple[str, Any]] = {
    "a list": (
        "(define (nth x n) (if (= n 0) (car x) (nth (cdr x) (- n 1))))"
        "(define (f (cons x n)) (* (nth x n) (nth x n)))",
        (([1.0, 3.0], 1.0), ([1.0, 3.0], 2.0)),
    ),
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


@pytest.mark.slow("in a loop", "an index")
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_told_in_the_same_words(name: str) -> None:
    text, points = FAULTS[name]
    text = program("lists") + text + " (define (g x) (*j f x 1))"
    compiled, interpreted = vlad.compile(text), vlad.compile(text, engine="interpreter")
    for x in points:
        assert told(compiled["g"], x) == told(interpreted["g"], x), x


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
