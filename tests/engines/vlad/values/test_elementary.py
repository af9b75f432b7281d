"""Elementary functions, unary minus and external functions: values and derivatives."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from retape import GradientTypeError, LanguageError, UnsupportedError, vlad
from retape.vlad import External
from tests.engines.vlad.support.cases import ENGINES
from tests.engines.vlad.support.seams import WITH_PARTIALS

ORACLES: dict[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "(-)": lambda a: -a,
    "real": lambda a: a,
    "abs": abs,
    "atan": math.atan2,
    "expt": math.pow,
    "min": min,
    "max": max,
}
"""Python's own functions, where `math` has none of the name."""

POINTS = {
    1: ((-0.9,), (0.6,), (1.5,)),
    2: ((2.0, 3.0), (0.7, -1.5)),
}
"""Where operators are tried, if they have a value there."""

Case = tuple[str, tuple[float, ...]]

DERIVATIVES = """
(define (all f x) (cons* (f x) (*j f x 1) (checkpoint-*j f x 1)))
(define (all1 f x) (cons* (f x) (j* f x 1) (*j f x 1) (checkpoint-*j f x 1)))
(define (v f x) (f x))
(define (d f x) (j* f x 1))
(define (g f x) (*j f x 1))
(define (c f x) (checkpoint-*j f x 1))
(define (second f x) (*j (lambda (y) (let (((cons a b) (*j f y 1))) b)) x 1))
"""


def _flat(value: Any) -> list[float]:
    """The reals of nested pairs."""
    if isinstance(value, tuple):
        return [real for part in value for real in _flat(part)]
    return [value]


def _value(name: str, *args: float) -> float:
    return (ORACLES.get(name) or getattr(math, name))(*args)


def _partial(name: str, args: tuple[float, ...], at: int, h: float = 1e-5) -> float:
    """By the operand at a place, from values to either side."""
    above, below = ((*args[:at], args[at] + d, *args[at + 1 :]) for d in (h, -h))
    return (_value(name, *above) - _value(name, *below)) / (2 * h)


def _cases() -> list[Case]:
    found: list[Case] = []
    for name, arity in WITH_PARTIALS.items():
        for args in POINTS[arity]:
            with suppress(ValueError):  # an operator has no value there
                _partial(name, args, 0)
                found.append((name, args))
    return found


def _applied(case: Case, how: str) -> str:
    name, args = case
    written = name.replace("(-)", "-")
    operands = "x y"[: 2 * len(args) - 1]
    point = args[0] if len(args) == 1 else f"(cons {args[0]} {args[1]})"
    takes = operands if len(args) == 1 else "(cons x y)"
    return f"({how} (lambda ({takes}) ({written} {operands})) {point})\n"


def test_every_operator_is_tried() -> None:
    cases = _cases()
    assert {name for name, _ in cases} == {*WITH_PARTIALS}
    assert len(cases) >= 2 * len(WITH_PARTIALS)


@pytest.mark.slow("compiled")
@pytest.mark.parametrize("engine", ENGINES)
def test_values_and_partials_are_those_of_python_and_of_differences(
    engine: str,
) -> None:
    cases = _cases()
    text = DERIVATIVES + "".join(
        _applied(case, "all1" if len(case[1]) == 1 else "all") for case in cases
    )
    results = vlad.run(text, engine=engine).values
    for case, result in zip(cases, results, strict=True):
        name, args = case
        wanted = pytest.approx(_value(name, *args), rel=1e-15)
        slopes = [_partial(name, args, at) for at in range(len(args))]
        partials = [pytest.approx(slope, rel=1e-6, abs=1e-9) for slope in slopes]
        once = [wanted, *partials]
        times = 3 if len(args) == 1 else 2  # forward mode of one operand, too
        assert _flat(result) == [wanted, *(once * times)], case


def test_the_implementations_agree_in_every_bit_on_derivatives() -> None:
    names = [n for n, arity in WITH_PARTIALS.items() if arity == 1 and n != "(-)"]
    calls = "".join(f"(second (lambda (x) ({name} (* x x))) 0.37)" for name in names)
    calls += "".join(f"(d (lambda (x) ({name} x)) 0.37)" for name in names)
    calls += "(second (lambda (x) (expt x x)) 1.3) (second (lambda (x) (- x)) 3)"
    results = [vlad.run(DERIVATIVES + calls, engine=e).output for e in ENGINES]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operator_that_a_program_defines_is_its_own(engine: str) -> None:
    own = "(define (- x) (* 10 x)) (- 3)"
    assert vlad.run(own, engine=engine).values == (30.0,)
    assert set(vlad.compile(own, engine=engine)) == {"-"}


SLOPE = External(
    lambda x: 2 * x * math.cos(x * x),
    [lambda x: 2 * math.cos(x * x) - 4 * x * x * math.sin(x * x)],
)
EXTERNALS = {
    "wave": External(lambda x: math.sin(x * x), [SLOPE]),
    "area": External(
        lambda x, y: x * y * y, [lambda x, y: y * y, lambda x, y: 2 * x * y]
    ),
    "first": External(lambda x, y: x, [lambda x, y: 1.0, None]),
    "nan": External(lambda x: math.nan, [None]),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_external_function_has_the_derivatives_given_with_it(engine: str) -> None:
    calls = "(v wave 0.7) (d wave 0.7) (g wave 0.7) (c wave 0.7) (second wave 0.7)"
    calls += " (*j area (cons 2 3) 1) (*j (lambda (x) (first x 2)) 5 1) (nan 1)"
    text = DERIVATIVES + calls
    value, *first, second, area, one, nan = vlad.run(
        text, engine=engine, externals=EXTERNALS
    ).values
    assert value == math.sin(0.7 * 0.7)
    slope = 2 * 0.7 * math.cos(0.7 * 0.7)
    assert first == [(value, pytest.approx(slope, rel=1e-14))] * 3
    curvature = (SLOPE.function(0.7 + 1e-5) - SLOPE.function(0.7 - 1e-5)) / 2e-5
    assert second == (pytest.approx(slope), pytest.approx(curvature, rel=1e-8))
    assert area == (18.0, 9.0, 12.0)
    assert one == (5.0, 1.0)
    assert math.isnan(nan)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_external_function_without_a_rule_is_refused(engine: str) -> None:
    with pytest.raises(LanguageError, match="pass one in the `partials`"):
        vlad.run("(*j first (cons 1 2) 1)", engine=engine, externals=EXTERNALS)
    with pytest.raises(LanguageError, match="`wave` takes reals, not `#t`"):
        vlad.run("(wave #t)", engine=engine, externals=EXTERNALS)
    with pytest.raises(
        LanguageError, match="`wave` is the name of an external function"
    ):
        vlad.run("(define (wave x) x)", engine=engine, externals=EXTERNALS)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_external_function_raises_arrives(engine: str) -> None:
    bad = {"bad": External(lambda x: 1 / 0, [None])}
    with pytest.raises(ZeroDivisionError):
        vlad.run("(+ 1 (bad 2))", engine=engine, externals=bad)


def test_an_external_that_calls_its_program_is_refused() -> None:
    module = vlad.compile(
        "(define (f x) (g x)) (define (h x) x)",
        externals={"g": External(lambda x: module["h"](x), [None])},
    )
    with pytest.raises(UnsupportedError, match="`g` called the program that it was"):
        module["f"](1.0)
    assert module["h"](2.0) == 2.0


def test_what_is_no_external_function_is_refused() -> None:
    with pytest.raises(GradientTypeError, match="takes one or two reals, not 3"):
        External(math.hypot, [None, None, None])
    with pytest.raises(GradientTypeError, match="`let` is a reserved word"):
        vlad.run("1", externals={"let": External(math.exp, [None])})
