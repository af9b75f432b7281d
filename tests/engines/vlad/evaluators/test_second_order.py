"""Reverse mode over `checkpoint-*j`: right, the same everywhere, short on tape."""

import math
from typing import Any

import pytest

from retape import fixed_space, logarithmic, native, vlad
from retape.vlad import External
from tests.engines.vlad.support.seams import bytes_of

ENGINES = ["interpreter", "hybrid", "compiled"]

PROGRAM = """
(define (cdr (cons a b)) b)

(define (steps y w n)
  (if (zero? n) y (steps (+ (* w (sin y)) (* 0.1 (* y y))) w (- n 1))))

(define (captured w x) ; the inner function has an outer number in it
  (cdr (OP (lambda (y) (* w (steps y w 5))) x 1)))

(define (seeded w x) ; the cotangent is of the outer run, too
  (let* (((cons value c) (OP (lambda (y) (steps y 0.9 4)) x (* w w))))
    (+ value (* c x))))

(define (shared w x) ; values with structure, one of them twice
  (let* ((p (cons w (list x w)))
         ((cons (cons a b) (cons c d))
          (OP (lambda ((cons u (cons v rest))) (cons (steps u v 3) (* u v)))
              p (cons 1 x))))
    (+ (* a c) b)))

(define (vectors w x)
  (let* ((v (vector-set (make-vector 3 x) 1 w))
         ((cons y c) (OP (lambda (v) (steps (* (vector-ref v 1) (vector-ref v 2)) w 3))
                         v 1)))
    (+ (vector-ref c 1) (* (vector-ref c 2) (vector-ref c 0)))))

(define (forward w x) ; forward mode between the two
  (cdr (j* (lambda (z) (captured z x)) w 1)))

(define (third w x) ; three deep
  (cdr (OP (lambda (z) (captured z x)) w 1)))

(define (told w x) ; what is printed inside is printed once
  (cdr (OP (lambda (y) (* (write-real (sin y)) (* w y))) x 1)))
"""
NAMES = ["captured", "seeded", "shared", "vectors", "forward", "third"]
PLANS = {
    "one stage": logarithmic(stage=1000),
    "many": fixed_space(snapshots=2, stage=3),
}


def _gradients(engine: Any, operator: str, plan: Any, name: str) -> Any:
    program = PROGRAM.replace("OP", operator)
    module = vlad.compile(program, engine=engine, plan=plan)
    return module[name].checkpointed_grad(0.8, 0.6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("plan", PLANS)
def test_it_is_what_a_taped_inner_derivative_has(plan: str, name: str) -> None:
    expected = _gradients("interpreter", "*j", PLANS[plan], name)
    found = _gradients("interpreter", "checkpoint-*j", PLANS[plan], name)
    assert found == pytest.approx(expected, rel=1e-12)
    assert any(expected)


@pytest.mark.parametrize("plan", PLANS)
def test_the_implementations_agree(plan: str) -> None:
    found: list[Any] = []
    for engine in ENGINES:
        module = vlad.compile(
            PROGRAM.replace("OP", "checkpoint-*j"), engine=engine, plan=PLANS[plan]
        )
        found.append([module[name].checkpointed_grad(0.8, 0.6) for name in NAMES])
    assert found[0] == found[1]
    if plan == "one stage":
        assert found[0] == found[2]
    for mine, theirs in zip(found[0], found[2], strict=True):
        assert theirs == pytest.approx(mine, rel=1e-14)  # it stops between blocks


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_printed_inside_is_printed_once(engine: Any) -> None:
    text = PROGRAM.replace("OP", "checkpoint-*j")
    text += "(checkpoint-*j (lambda (w) (told w 0.6)) 0.8 1) (write-real 7)"
    ran = vlad.run(text, engine=engine, plan=fixed_space(snapshots=2, stage=3))
    assert ran.output.startswith(repr(math.sin(0.6)) + "\n(")
    assert ran.output.count(repr(math.sin(0.6))) == 1
    assert ran.output.endswith(")\n7\n7\n")


def test_partials_of_the_user_are_taped_since_they_need_not_be_symmetric() -> None:
    twice = External(lambda a, b: 3.0 * a, [lambda a, b: 3.0, lambda a, b: 0.0])
    second = External(lambda a, b: b, [lambda a, b: 0.0, lambda a, b: 1.0])
    product = External(lambda a, b: a * b, [second, twice])
    text = """
    (define (cdr (cons a b)) b)
    (define (f w) (cdr (OP (lambda (y) (product w y)) 2 1)))
    """
    for engine in ENGINES:
        found = [
            vlad.compile(
                text.replace("OP", operator),
                engine=engine,  # type: ignore[arg-type]
                externals={"product": product},
            )["f"].checkpointed_grad(0.5)
            for operator in ("*j", "checkpoint-*j")
        ]
        assert found[0] == found[1] == 3.0, engine


def wave(x, n):
    y = x
    for _ in range(n):
        y = y + 1e-5 * math.sin(y) * x
    return y


def test_memory_of_reverse_over_reverse_does_not_grow_with_the_run() -> None:
    plan = logarithmic(stage=2_000)
    second = native.grad(native.grad(wave, plan=plan), plan=plan)
    found = []
    for n in (1_000, 50_000):
        second(0.7, n)
        found.append(bytes_of(second))
    assert found[1] < 2.0 * found[0]
    assert found[1] < 3e6
