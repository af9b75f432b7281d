"""All three implementations as machines: every plan, exact counts, deep recursion."""

from typing import Any

import pytest

import retape
from retape import logarithmic, vlad
from tests.engines.vlad.support.cases import ENGINES
from tests.engines.vlad.support.seams import engine_of

GRID = """
(include "examples/vlad/adaptive_grid.vlad")
"""

LOOP = """
(define (car (cons a b)) a)
(define (cdr (cons a b)) b)
(define (sum l) (if (null? l) 0 (+ (car l) (sum (cdr l)))))
(define (step l)
  (if (null? l) '() (cons (sin (+ (car l) (sum (cdr l)))) (step (cdr l)))))
(define (f l) (let loop ((i 0) (l l)) (if (= i 6) (sum l) (loop (+ i 1) (step l)))))
(*j f (list 0.1 0.2 0.3 0.4) 1)
(checkpoint-*j f (list 0.1 0.2 0.3 0.4) 1)
"""

PLANS: list[retape.Plan] = [
    retape.logarithmic(stage=100),
    retape.logarithmic(stage=37, split="bisection"),
    retape.logarithmic(stage=211, split="treeverse"),
    retape.fixed_space(snapshots=3, stage=150),
    retape.fixed_space(snapshots=1, stage=400),
    retape.fixed_time(sweeps=2, stage=90),
    retape.segments(stage=123),
    retape.within("20 kB"),
    retape.fixed_space(snapshots=20, stage=1),
]


def _engine(name: str, text: str, plan: retape.Plan, reports: list[Any]) -> Any:
    return engine_of(name, text, plan, report=reports.append)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("name", ENGINES)
def test_every_plan_gives_the_gradient_with_the_planned_advances(
    name: str, plan: retape.Plan
) -> None:
    reports: list[Any] = []
    engine = _engine(name, LOOP, plan, reports)
    (value, gradient), _ = engine.evaluate(0)
    (again, divided), _ = engine.evaluate(1)
    assert again == value
    while gradient:
        assert divided[0] == pytest.approx(gradient[0], rel=1e-12)
        gradient, divided = gradient[1], divided[1]
    (report,) = reports
    assert report.length == report.taped == 2045
    if getattr(plan, "stage", None) is not None:
        assert report.advances == plan.predict(report.length).advances


@pytest.mark.slow("hybrid", "interpreter")
@pytest.mark.parametrize("name", ENGINES)
def test_a_million_frames_do_not_overflow(name: str) -> None:
    n = 1_000_000 if name == "compiled" else 100_000
    text = """
    (define (count n) (if (zero? n) 0 (+ 1 (count (- n 1)))))
    (define (up n) (if (zero? n) '() (cons n (up (- n 1)))))
    (define (cdr (cons a b)) b)
    (define (length l) (if (null? l) 0 (+ 1 (length (cdr l)))))
    (count N)
    (length (up N))
    """.replace("N", str(n))
    engine = _engine(name, text, retape.logarithmic(stage=1000), [])
    assert engine.evaluate(0) == (n, 23 * n + 10)
    assert engine.evaluate(1)[0] == n


def test_a_loop_of_a_hundred_million_steps_needs_no_memory() -> None:
    text = "(let loop ((i 0)) (if (= i 6000000) i (loop (+ i 1))))"
    engine = _engine("compiled", text, retape.logarithmic(stage=1000), [])
    value, steps = engine.evaluate(0)
    assert value == 6e6
    assert steps > 10**8
    assert engine.native.measured().mapped < 2**20  # type: ignore[attr-defined]


def test_a_derivative_of_a_deep_recursion() -> None:
    text = """
    (define (grow n x) (if (zero? n) x (+ (* 0.5 x) (grow (- n 1) x))))
    (*j (lambda (x) (grow 100000 x)) 2 1)
    (checkpoint-*j (lambda (x) (grow 100000 x)) 2 1)
    """
    engine = _engine("compiled", text, retape.logarithmic(stage=10_000), [])
    assert engine.evaluate(0)[0] == (100_002.0, 50_001.0)
    assert engine.evaluate(1)[0] == (100_002.0, 50_001.0)


def test_live_bytes_with_checkpointing_grow_much_slower_than_the_tape() -> None:
    text = """
    (define (f x n) (if (zero? n) x (f (sin (+ x 1)) (- n 1))))
    (define (g n) (checkpoint-*j (lambda (x) (f x n)) 1 1))
    (define (h n) (*j (lambda (x) (f x n)) 1 1))
    (g 1000) (g 100000) (h 1000) (h 100000)
    """
    engine = _engine("compiled", text, retape.logarithmic(stage=1000), [])
    native = engine.native  # type: ignore[attr-defined]
    peaks = []
    for index in range(4):
        native.note_peaks(exact=True)
        engine.evaluate(index)
        peaks.append(native.measured().live)
    assert peaks[1] < 3 * peaks[0]
    assert peaks[3] > 50 * peaks[2]


def test_the_paper_example_in_small_agrees_in_all_three() -> None:
    results = []
    for name in ENGINES:
        numbers = iter([6.0, 7.0, 3.0])
        plan = retape.logarithmic(stage=500)
        made = engine_of(name, GRID, plan, read=lambda it=numbers: next(it))
        results.append(made.evaluate(0))
    values = [_flat(value) for value, _ in results]
    assert values[0] == pytest.approx([45.5, 6, 5, 4, 3, 2, 1], rel=1e-9)
    assert values[1] == pytest.approx(values[0], rel=1e-12)
    assert values[2] == pytest.approx(values[0], rel=1e-12)
    assert len({steps for _, steps in results}) == 1


def _flat(value: object) -> list[float]:
    items: list[float] = []
    while isinstance(value, tuple) and value:
        items.append(value[0])
        value = value[1]
    return items


def test_a_machine_that_is_seeded_wrongly_is_noticed() -> None:
    """The oracle of these tests sees a cotangent that is 0.1 % off."""
    text = LOOP.replace("0.4) 1)\n(checkpoint", "0.4) 1.001)\n(checkpoint")
    engine = _engine("interpreter", text, PLANS[0], [])
    (_, gradient), _ = engine.evaluate(0)
    (_, divided), _ = engine.evaluate(1)
    assert divided[0] != pytest.approx(gradient[0], rel=1e-12)


def test_stages_of_a_loop_are_as_long_as_the_plan_says() -> None:
    loop = """
    (define (f x) (let loop ((i 0) (l '()) (y x))
      (if (= i 30000) y (loop (+ i 1) (cons y '()) (* 0.999 (sin y))))))
    (checkpoint-*j f 0.5 1)
    """
    (report,) = vlad.run(loop, plan=logarithmic(stage=1000), report=True).reports
    assert report.reverses == -(-report.length // 1000)
