"""Derivatives in derivatives: every nesting, by all implementations, short on tape."""

import itertools
import math
from typing import Any

import pytest

from retape import LanguageError, fixed_space, logarithmic, vlad

ENGINES: list[Any] = ["interpreter", "hybrid", "compiled"]
OPERATORS = {"F": "j*", "R": "*j", "C": "checkpoint-*j"}

WAVE = """
(define (cdr (cons a b)) b)
(define (steps x y n)
  (if (zero? n) y (steps x (+ y (* 1e-5 (* x (sin y)))) (- n 1))))
(define (wave0 x n) (steps x x n))
"""

TWO = ["".join(each) for each in itertools.product("FRC", repeat=2)]
THREE = ["".join(each) for each in itertools.product("FRC", repeat=3)]


def _wave(forms: list[str]) -> str:
    """A program with a function for each form, derived as it says, outermost first."""
    text = WAVE
    for form in forms:
        for depth, letter in enumerate(reversed(form), 1):
            name = form[len(form) - depth :]
            inner = form[len(form) - depth + 1 :] or "wave0"
            definition = (
                f"(define (d{name} x n) (cdr ({OPERATORS[letter]} "
                f"(lambda (x) ({'d' * (inner != 'wave0')}{inner} x n)) x 1)))\n"
            )
            if definition not in text:
                text += definition
    return text


def _oracle(depth: int, x: float, n: int) -> float:
    """A derivative of `wave0` by its series: polynomials of the step from x."""
    terms = depth + 1
    step = [x, 1.0] + [0.0] * (terms - 2)
    y = list(step)
    for _ in range(n):
        sine, cosine = [math.sin(y[0])], [math.cos(y[0])]
        for k in range(1, terms):
            parts = range(1, k + 1)
            sine.append(sum(i * y[i] * cosine[k - i] for i in parts) / k)
            cosine.append(-sum(i * y[i] * sine[k - i] for i in parts) / k)
        for k in range(terms - 1, -1, -1):
            y[k] += 1e-5 * sum(step[i] * sine[k - i] for i in range(k + 1))
    return y[depth] * math.factorial(depth)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_nesting_is_right(engine: Any) -> None:
    plan = fixed_space(snapshots=2, stage=30)
    module = vlad.compile(_wave(TWO + THREE), engine=engine, plan=plan)
    for form in TWO + THREE:
        found = module[f"d{form}"](0.7, 12)
        assert found == pytest.approx(_oracle(len(form), 0.7, 12), rel=1e-12), form


STRUCTURE = """
(define (cdr (cons a b)) b)
(define (steps y w n)
  (if (zero? n) y (steps (+ (* w (sin y)) (* 0.1 (* y y))) w (- n 1))))

(define (captured w x) ; the inner function has an outer number in it
  (cdr (j* (lambda (y) (* w (steps y w 5))) x 1)))

(define (along w x) ; the tangent is of the outer run, and so is the argument
  (let* (((cons value t) (j* (lambda (y) (steps y 0.9 4)) (* x w) (sin w))))
    (+ value (* t t))))

(define (shared w x) ; values with structure, one of them twice
  (let* ((p (cons w (list x w)))
         ((cons (cons a b) (cons c d))
          (j* (lambda ((cons u (cons v rest))) (cons (steps u v 3) (* u v)))
              p (cons x (list w 1)))))
    (+ (* a c) (+ b (* d d)))))

(define (vectors w x)
  (let* ((v (vector-set (make-vector 3 x) 1 w))
         ((cons y t) (j* (lambda (v)
                           (vector-set v 0 (steps (* (vector-ref v 1) (vector-ref v 2))
                                                  w 3)))
                         v (vector-set (make-vector 3 1) 2 w))))
    (+ (vector-ref t 0) (* (vector-ref t 2) (vector-ref y 0)))))

(define (constant w x) ; a result that no tangent reaches, and a value without one
  (let* (((cons (cons a b) (cons c d)) (j* (lambda (y) (cons 3 (list #t y))) x w)))
    (+ a (* c (* w x)))))

(define (both w x) ; forward mode, reverse mode, and forward mode again
  (cdr (j* (lambda (z) (cdr (*j (lambda (y) (captured (* y z) x)) w 1))) x w)))

(define (told w x) ; what is printed inside is printed once
  (cdr (j* (lambda (y) (* (write-real (sin y)) (* w y))) x 1)))
"""
NAMES = ["captured", "along", "shared", "vectors", "constant", "both"]
PLANS = {
    "one stage": logarithmic(stage=1000),
    "many": fixed_space(snapshots=2, stage=3),
}


@pytest.mark.parametrize("plan", PLANS)
def test_forward_mode_inside_of_reverse_mode(plan: str) -> None:
    """Against reverse mode that tapes all of it, as no plan asks for less."""
    module = vlad.compile(STRUCTURE, engine="interpreter")
    expected = [module[name].grad(0.8, 0.6) for name in NAMES]
    for engine in ENGINES:
        module = vlad.compile(STRUCTURE, engine=engine, plan=PLANS[plan])
        for name, right in zip(NAMES, expected, strict=True):
            found = module[name].checkpointed_grad(0.8, 0.6)
            assert found == pytest.approx(right, rel=1e-12), (engine, name)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_printed_inside_of_forward_mode_is_printed_once(engine: Any) -> None:
    text = STRUCTURE + "(checkpoint-*j (lambda (w) (told w 0.6)) 0.8 1) (write-real 7)"
    ran = vlad.run(text, engine=engine, plan=fixed_space(snapshots=2, stage=3))
    assert ran.output.startswith(repr(math.sin(0.6)) + "\n(")
    assert ran.output.count(repr(math.sin(0.6))) == 1


@pytest.mark.slow("compiled")
@pytest.mark.parametrize("engine", ENGINES)
def test_faults_inside_name_the_operator_that_was_written(engine: Any) -> None:
    for operator in OPERATORS.values():
        inner = f"({operator} (lambda (y) (* w y)) 2 #t)"
        with pytest.raises(LanguageError, match=rf"`{operator.replace('*', '[*]')}`"):
            vlad.run(f"(checkpoint-*j (lambda (w) {inner}) 3 1)", engine=engine)


def _bytes(module: Any) -> int:
    return module.engine.native.call("census").u


@pytest.mark.slow
def test_memory_under_a_plan_does_not_grow_with_the_run() -> None:
    forms = [form for form in TWO + THREE if "C" in form and form not in ("FR", "RF")]
    forms = [form for form in forms if form[0] == "C" or form in ("FC", "RC", "FCF")]
    text, plan = _wave(forms), logarithmic(stage=1_000)
    module = vlad.compile(text, plan=plan)
    native = module.engine.native  # type: ignore[attr-defined]
    for form in forms:
        found = []
        for n in (500, 10_000):
            native.forget_peaks()
            module[f"d{form}"](0.7, n)
            found.append(_bytes(module))
        assert found[1] < 2.5e6, (form, found)


def test_values_that_a_sweep_computes_in_outlive_collections() -> None:
    """Code that runs in the middle of a sweep collects: what a sweep holds moves."""
    text = _wave(["CCC"])
    for stage, n in ((50, 300), (2_000, 1_000), (2_000, 30_000)):
        module = vlad.compile(text, plan=logarithmic(stage=stage))
        module["dCCC"](0.7, 5)
        found = module["dCCC"](0.7, n)
        module.engine.native.call("census")  # type: ignore[attr-defined]
        assert found == pytest.approx(_oracle(3, 0.7, n), rel=1e-9)
