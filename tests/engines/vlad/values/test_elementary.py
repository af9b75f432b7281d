"""Elementary functions, unary minus and external functions: values and derivatives."""

import math

import pytest

from retape import GradientTypeError, UnsupportedError, vlad
from retape.vlad import External, RunError, SyntaxFault
from tests.engines.vlad.support.cases import ENGINES

FUNCTIONS = {
    "tan": (math.tan, (-1.2, 0.3, 1.1)),
    "asin": (math.asin, (-0.9, 0.0, 0.6)),
    "acos": (math.acos, (-0.9, 0.0, 0.6)),
    "sinh": (math.sinh, (-2.0, 0.0, 1.5)),
    "cosh": (math.cosh, (-2.0, 0.0, 1.5)),
    "tanh": (math.tanh, (-2.0, 0.0, 1.5)),
    "expm1": (math.expm1, (-2.0, 1e-9, 1.5)),
    "log1p": (math.log1p, (-0.5, 1e-9, 1.5)),
    "log2": (math.log2, (0.1, 1.0, 9.0)),
    "log10": (math.log10, (0.1, 1.0, 9.0)),
    "erf": (math.erf, (-2.0, 0.0, 0.5)),
    "abs": (abs, (-2.0, 0.5, 3.0)),
    "-": (lambda x: -x, (-2.0, 0.0, 3.0)),
}
TWO = {
    "expt": (math.pow, ((2.0, 3.0), (0.7, -1.5), (3.0, 0.0))),
    "min": (min, ((1.0, 2.0), (2.0, 1.0))),
    "max": (max, ((1.0, 2.0), (2.0, 1.0))),
}
DERIVATIVES = """
(define (value f x) (f x))
(define (d f x) (j* f x 1))
(define (g f x) (*j f x 1))
(define (c f x) (checkpoint-*j f x 1))
(define (second f x) (*j (lambda (y) (let (((cons a b) (*j f y 1))) b)) x 1))
"""


def _central(f, x: float, h: float = 1e-5) -> float:
    return (f(x + h) - f(x - h)) / (2 * h)


@pytest.mark.slow("compiled")
@pytest.mark.parametrize("engine", ENGINES)
def test_values_and_slopes_are_those_of_python_and_of_differences(engine: str) -> None:
    rows = [(n, f, x) for n, (f, xs) in FUNCTIONS.items() for x in xs]
    calls = "".join(
        f"({how} (lambda (x) ({name} x)) {x!r})\n"
        for name, _, x in rows
        for how in ("value", "d", "g", "c")
    )
    values = iter(vlad.run(DERIVATIVES + calls, engine=engine).values)
    for name, function, x in rows:
        assert next(values) == pytest.approx(function(x), rel=1e-15), name
        slope = pytest.approx(_central(function, x), rel=1e-6, abs=1e-9)
        assert [next(values)[1] for _ in range(3)] == [slope] * 3, name


@pytest.mark.parametrize("engine", ENGINES)
def test_functions_of_two_reals_have_both_partials(engine: str) -> None:
    rows = [(n, f, x, y) for n, (f, ps) in TWO.items() for x, y in ps]
    calls = "".join(f"(*j {n} (cons {x!r} {y!r}) 1)\n" for n, _, x, y in rows)
    for row, (value, *partials) in zip(
        rows, vlad.run(calls, engine=engine).values, strict=True
    ):
        name, f, x, y = row
        by_x = _central(lambda a, f=f, y=y: f(a, y), x)
        by_y = _central(lambda b, f=f, x=x: f(x, b), y)
        assert value == f(x, y), name
        assert partials == pytest.approx([by_x, by_y], rel=1e-6, abs=1e-9), name


def test_the_implementations_agree_in_every_bit_on_second_derivatives() -> None:
    names = [name for name in FUNCTIONS if name != "-"]
    calls = "".join(f"(second (lambda (x) ({name} (* x x))) 0.37)" for name in names)
    calls += "(second (lambda (x) (expt x x)) 1.3) (second (lambda (x) (- x)) 3)"
    results = [vlad.run(DERIVATIVES + calls, engine=e).output for e in ENGINES]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("engine", ENGINES)
def test_powers_where_the_formula_has_no_value(engine: str) -> None:
    text = "(*j expt (cons 0 3) 1) (*j expt (cons 0 0) 1) (*j expt (cons -2 3) 1)"
    zero, one, cube = vlad.run(text, engine=engine).values
    assert zero == (0.0, 0.0, 0.0)
    assert one == (1.0, 0.0, 0.0)
    assert cube[:2] == (-8.0, 12.0)
    assert math.isnan(cube[2])


@pytest.mark.parametrize("engine", ENGINES)
def test_minus_of_one_operand(engine: str) -> None:
    text = "(- 3) (- 0) (- (cons 5 2)) (let ((p (cons 1 4))) (- p)) (- 7 4)"
    result = vlad.run(text, engine=engine)
    assert result.output == "-3\n-0\n3\n-3\n3\n"
    assert result.steps[4] == 8
    with pytest.raises(RunError, match="`-` takes reals, not `#t`"):
        vlad.run("(- #t)", engine=engine)
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
    calls = "(value wave 0.7) (d wave 0.7) (g wave 0.7) (c wave 0.7) (second wave 0.7)"
    calls += " (*j area (cons 2 3) 1) (*j (lambda (x) (first x 2)) 5 1) (nan 1)"
    text = DERIVATIVES + calls
    value, *first, second, area, one, nan = vlad.run(
        text, engine=engine, externals=EXTERNALS
    ).values
    assert value == math.sin(0.7 * 0.7)
    slope = 2 * 0.7 * math.cos(0.7 * 0.7)
    assert first == [(value, pytest.approx(slope, rel=1e-14))] * 3
    curvature = _central(SLOPE.function, 0.7)
    assert second == (pytest.approx(slope), pytest.approx(curvature, rel=1e-8))
    assert area == (18.0, 9.0, 12.0)
    assert one == (5.0, 1.0)
    assert math.isnan(nan)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_external_function_without_a_rule_is_refused(engine: str) -> None:
    with pytest.raises(RunError, match="`first` has no derivative by its second op"):
        vlad.run("(*j first (cons 1 2) 1)", engine=engine, externals=EXTERNALS)
    with pytest.raises(RunError, match="`wave` takes reals, not `#t`"):
        vlad.run("(wave #t)", engine=engine, externals=EXTERNALS)
    with pytest.raises(SyntaxFault, match="`wave` is the name of an external function"):
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
    with pytest.raises(GradientTypeError, match="`3` is no function"):
        External(math.exp, [3])  # type: ignore[list-item]
    with pytest.raises(GradientTypeError, match="`let` is a reserved word"):
        vlad.run("1", externals={"let": External(math.exp, [None])})
