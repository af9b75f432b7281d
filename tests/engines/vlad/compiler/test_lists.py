"""Lists of reals in typed code: the interpreter's gradients, and finite differences."""

import random
from typing import Any

import numpy as np
import pytest

import retape
from retape import vlad
from tests.engines.vlad.support.seams import compile_with

PRELUDE = """
(define (car (cons a b)) a)
(define (cdr (cons a b)) b)
(define (map1 x k) (if (null? x) '() (cons (sin (* k (car x))) (map1 (cdr x) k))))
(define (turn a x) (if (or (null? x) (null? (cdr x))) x
  (cons (- (* (cos a) (car x)) (* (sin a) (car (cdr x))))
   (cons (+ (* (sin a) (car x)) (* (cos a) (car (cdr x)))) (turn a (cdr (cdr x)))))))
(define (back x y) (if (pair? x) (back (cdr x) (cons (car x) y)) y))
(define (join x y) (if (null? x) y (cons (car x) (join (cdr x) y))))
(define (plus x y) (cond ((null? x) y) ((null? y) x)
  (else (cons (+ (car x) (* 0.5 (car y))) (plus (cdr x) (cdr y))))))
(define (some x) (cond ((null? x) '()) ((< (car x) 0.3) (some (cdr x)))
  (else (cons (* (car x) (car x)) (some (cdr x))))))
(define (first n x) (if (or (<= n 0) (null? x)) '()
  (cons (car x) (first (- n 1) (cdr x)))))
(define (sum x) (if (null? x) 0 (+ (car x) (sum (cdr x)))))
(define (sumsq x) (let loop ((s 0) (x x))
  (if (null? x) s (loop (+ s (* (car x) (car x))) (cdr x)))))
"""

GOOD = {
    "a sum": "(define (f@ x) (sumsq x))",
    "a rotation": (
        "(define (f@ x) (let loop ((i 0) (x x)) (if (= i 5) (sumsq (map1 x 2))"
        " (loop (+ i 1) (cons (car x) (turn (* 1.2 (sqrt (sumsq x))) (cdr x)))))))"
    ),
    "a list in a state twice": (
        "(define (f@ x) (let loop ((i 0) (p x) (q (cons 2 x))) (if (< i 9)"
        " (loop (+ i 1) (plus p q) p) (+ (sum p) (* (sumsq q) (sumsq p))))))"
    ),
    "a tail in a state twice": (
        "(define (f@ x) (let loop ((i 0) (p x) (q (cdr x))) (if (< i 4)"
        " (loop (+ i 1) (cons (* (car p) (sum q)) q) p) (+ (sum p) (sumsq q)))))"
    ),
    "pairs of lists": (
        "(define (two@ x) (cons (some x) (map1 x 0.3)))"
        " (define (f@ x) (let (((cons a b) (two@ x)))"
        " (+ (sumsq a) (* (sum b) (sum a)))))"
    ),
    "a list in a closure": (
        "(define (h@ w) (lambda (x) (sumsq (plus w (map1 x 3)))))"
        " (define (f@ x) (let ((w (map1 x 2)))"
        " (+ (sum w) (car (*j (h@ '()) w 1)))))"
    ),
    "reversed, joined and cut": (
        "(define (f@ x) (let ((y (back (join x (map1 x 2)) '())))"
        " (+ (sumsq (first 3 y)) (* (car y) (sum (first 100 y))))))"
    ),
    "numbers that no adjoint reaches": (
        "(define (count@ x) (if (null? x) 0 (+ 1 (count@ (cdr x)))))"
        " (define (f@ x) (* (count@ (some x)) (sum (first (count@ x) x))))"
    ),
    "a list that is asked where it is made": (
        "(define (f@ x) (let loop ((i 0) (x x)) (if (= i 3) (sumsq x)"
        " (if (null? (cons i x)) (sum x) (loop (+ i 1) (map1 (cons 2 x) 0.7))))))"
    ),
    "a list of constants": (
        "(define (f@ x) (sum (plus x (cons 3 (cons 4 (cons 5 '()))))))"
    ),
}
LEFT = {
    "a quoted list": "(define (f@ x) (sum (plus x '(3 4 5))))",
    "a list of lists": (
        "(define (all@ x) (if (null? x) 0 (+ (sumsq (car x)) (all@ (cdr x)))))"
        " (define (f@ x) (all@ (cons x (cons (cdr x) '()))))"
    ),
    "what is no list in the end": (
        "(define (end@ x) (if (pair? x) (+ (car x) (end@ (cdr x))) 0))"
        " (define (f@ x) (end@ (cons (car x) (cons (sum x) #f))))"
    ),
    "a function of a list's items": (
        "(define (all@ h x) (if (null? x) 0 (+ (h (car x)) (all@ h (cdr x)))))"
        " (define (f@ x) (all@ (lambda (y) (* y (sum x))) x))"
    ),
    "a pair that is a list elsewhere": (
        "(define (f@ x) (let ((h (lambda ((cons a b)) (+ (* a (sum b)) (sumsq x)))))"
        " (car (*j h x 1))))"
    ),
}
AT = [0.4, -0.7, 0.9, 0.25, 1.1]


def _flat(value: Any) -> list[float]:
    if isinstance(value, list | tuple):
        return [number for part in value for number in _flat(part)]
    return [value]


def _text(programs: list[str]) -> str:
    lines = [PRELUDE]
    for i, program in enumerate(programs):
        lines.append(program.replace("@", str(i)))
        for op, name in (("checkpoint-*j", "c"), ("*j", "r")):
            lines.append(f"(define ({name}{i} x) ({op} f{i} x 1))")
    return "\n".join(lines)


def _differences(f: Any, at: list[float]) -> list[float]:
    h = 1e-5

    def moved(k: int, by: float) -> float:
        return f([x + by * (i == k) for i, x in enumerate(at)])

    return [(moved(k, h) - moved(k, -h)) / (2 * h) for k in range(len(at))]


@pytest.mark.parametrize("stage", [10**6, 61, 7])
def test_lists_have_the_interpreters_gradients(stage: int) -> None:
    """In one stage and in many, which begin and end in the midst of lists."""
    plan, text = retape.logarithmic(stage=stage), _text(list(GOOD.values()))
    interpreted = vlad.compile(text, engine="interpreter", plan=plan)
    compiled = vlad.compile(text, plan=plan)
    for i, name in enumerate(GOOD):
        for derivative in (f"c{i}", f"r{i}"):
            found = _flat(compiled[derivative](AT))
            expected = _flat(interpreted[derivative](AT))
            np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)
        if stage != 10**6:
            continue
        differences = _differences(compiled[f"f{i}"], AT)
        np.testing.assert_allclose(found[1:], differences, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_list_of_reals_is_left_to_the_general_way(name: str) -> None:
    plan, text = retape.logarithmic(stage=61), _text([LEFT[name]])
    interpreted = vlad.compile(text, engine="interpreter", plan=plan)
    compiled = vlad.compile(text, plan=plan)
    for derivative in ("c0", "r0"):
        found = _flat(compiled[derivative](AT))
        np.testing.assert_allclose(found, _flat(interpreted[derivative](AT)), 1e-12)


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
    programs = [_random_program(seed) for seed in range(12)]
    text = _text(programs)
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
    text = PRELUDE + (
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


def test_a_fault_in_a_list_is_told_by_the_general_way() -> None:
    text = PRELUDE + (
        "(define (nth x n) (if (= n 0) (car x) (nth (cdr x) (- n 1))))"
        " (define (f x n) (* (nth x n) (nth x n))) (define (g x) (*j f x 1))"
    )
    compiled, interpreted = vlad.compile(text), vlad.compile(text, engine="interpreter")
    assert compiled["g"](([1.0, 3.0], 1.0)) == interpreted["g"](([1.0, 3.0], 1.0))
    said: list[list[str]] = []
    for module in (compiled, interpreted):
        with pytest.raises(retape.LanguageError) as error:
            module["g"](([1.0, 3.0], 2.0))
        said.append(str(error.value).splitlines()[:3])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "body",
    [
        "(+ x '())",
        "(+ x (car 5))",
        "(if 0 x (* 2 x))",
        "(if '() x (* 2 x))",
        "(if (null? '()) (* 3 x) x)",
        "(if (pair? 1) (* 3 x) x)",
    ],
)
def test_constants_of_another_kind(body: str) -> None:
    """Some of these were errors of ours when the program was compiled."""
    text = f"(define (car (cons a b)) a) (define (f x) {body}) (*j f 2 1)"
    said: list[Any] = []
    for engine in ("interpreter", "compiled"):
        try:
            said.append(vlad.run(text, engine=engine).values)
        except retape.LanguageError as error:
            said.append(str(error).splitlines()[:3])
    assert said[0] == said[1]
