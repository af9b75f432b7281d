"""Derivatives in derivatives: every nesting, by all implementations, short on tape."""

import itertools
import math
from typing import Any

import pytest

from retape import LanguageError, fixed_space, logarithmic, native, vlad
from retape.vlad import External
from tests.engines.vlad.support.cases import ENGINES, program
from tests.engines.vlad.support.seams import bytes_of
from tests.judges.pairwise import dealt

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


@pytest.mark.slow("hybrid")
@pytest.mark.parametrize("engine", ENGINES)
def test_every_nesting_is_right(engine: Any) -> None:
    plan = fixed_space(snapshots=2, stage=30)
    module = vlad.compile(_wave(TWO + THREE), engine=engine, plan=plan)
    for form in TWO + THREE:
        found = module[f"d{form}"](0.7, 12)
        assert found == pytest.approx(_oracle(len(form), 0.7, 12), rel=1e-12), form


NAMES = (
    "captured", "along", "shared", "vectors", "constant", "forward", "third", "both",
)  # fmt: skip
PLANS = {
    "one stage": logarithmic(stage=1000),
    "many": fixed_space(snapshots=2, stage=3),
}
TAPED = {"j*": "j*", "checkpoint-*j": "*j"}
"""What each operator is compared with, under reverse mode that tapes all of it."""


def _structure(operator: str) -> str:
    return program("nested").replace("OP", operator)


@pytest.mark.slow("one stage-checkpoint-*j")
@pytest.mark.parametrize(("plan", "operator"), dealt([*PLANS], ["checkpoint-*j", "j*"]))
def test_reverse_mode_over_a_derivative(plan: str, operator: str) -> None:
    """The same as where all is taped, and as differences."""
    module = vlad.compile(_structure(TAPED[operator]), engine="interpreter")
    expected = [module[name].grad(0.8, 0.6) for name in NAMES]
    for name, right in zip(NAMES, expected, strict=True):
        ends = [
            (module[name](0.8 + h, 0.6), module[name](0.8, 0.6 + h))
            for h in (1e-5, -1e-5)
        ]
        slopes = [(up - down) / 2e-5 for up, down in zip(*ends, strict=True)]
        assert right == pytest.approx(slopes, rel=1e-6, abs=1e-8), name
        assert any(right)
    found: list[Any] = []
    for engine in ENGINES:
        module = vlad.compile(_structure(operator), engine=engine, plan=PLANS[plan])
        found.append([module[name].checkpointed_grad(0.8, 0.6) for name in NAMES])
        for name, mine, right in zip(NAMES, found[-1], expected, strict=True):
            assert mine == pytest.approx(right, rel=1e-12), (engine, name)
    assert found[0] == found[1]
    if plan == "one stage" and operator == "checkpoint-*j":
        assert found[0] == found[2]  # it stops between blocks, where it stops


@pytest.mark.parametrize("operator", TAPED)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_printed_inside_is_printed_once(engine: Any, operator: str) -> None:
    text = _structure(operator)
    text += "(checkpoint-*j (lambda (w) (told w 0.6)) 0.8 1) (write-real 7)"
    ran = vlad.run(text, engine=engine, plan=fixed_space(snapshots=2, stage=3))
    assert ran.output.startswith(repr(math.sin(0.6)) + "\n(")
    assert ran.output.count(repr(math.sin(0.6))) == 1
    assert ran.output.endswith(")\n7\n7\n")


@pytest.mark.slow("compiled")
@pytest.mark.parametrize("engine", ENGINES)
def test_faults_inside_name_the_operator_that_was_written(engine: Any) -> None:
    for operator in OPERATORS.values():
        inner = f"({operator} (lambda (y) (* w y)) 2 #t)"
        with pytest.raises(LanguageError, match=rf"`{operator.replace('*', '[*]')}`"):
            vlad.run(f"(checkpoint-*j (lambda (w) {inner}) 3 1)", engine=engine)


def _bytes(module: Any) -> int:
    return module.engine.native.measured().mapped


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
            native.note_peaks()
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
        module.engine.native.measured()  # type: ignore[attr-defined]
        assert found == pytest.approx(_oracle(3, 0.7, n), rel=1e-9)


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
