"""Compiled functions: what is refused, what stops, what is seen anew, and plans."""

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from retape import (
    GradientTypeError,
    PlanError,
    fixed_space,
    logarithmic,
    native,
    segments,
)
from tests.engines.vlad.support.cases import ENGINES


def swap(a, b, n):
    for _ in range(n):
        a, b = b, a + b
    return (a, b), a


def scaled(x):
    return SCALE * x


SCALE = 2.0


def test_a_constant_of_the_outside_that_changes_is_seen() -> None:
    compiled = native.function(scaled, engine="interpreter")
    assert compiled(3.0) == 6.0
    globals()["SCALE"] = 5.0
    assert compiled(3.0) == 15.0
    globals()["SCALE"] = 2.0


def scaler(c):
    def scale(x):
        return (lambda y: c * y)(x)

    return scale


TWICE, THRICE = scaler(2.0), scaler(3.0)


def both(x):
    return TWICE(x), THRICE(x)


SETTINGS = ModuleType("settings")
SETTINGS.rate = 2.0


def rated(x):
    return SETTINGS.rate * x, math.inf, -math.inf, -0.0


def not_a_number(x):
    return math.nan * x


PAIR = (lambda x: x + 1.0), (lambda x: x + 2.0)
WITHIN = lambda x: (lambda y: y * 3.0)(x) + 1.0  # noqa: E731


@pytest.mark.parametrize("engine", ENGINES)
def test_functions_that_look_alike_are_not_confused(engine: Any) -> None:
    for f in (both, rated, *PAIR, WITHIN):
        assert native.function(f, engine=engine)(4.0) == f(4.0)
    assert math.isnan(native.function(not_a_number, engine=engine)(1.0))


def test_an_attribute_of_a_module_that_changes_is_seen() -> None:
    compiled = native.function(rated, engine="interpreter")
    assert compiled(1.0)[0] == 2.0
    SETTINGS.rate = 7.0
    assert compiled(1.0)[0] == 7.0
    SETTINGS.rate = 2.0


def test_keywords_and_defaults_and_kinds_of_arguments() -> None:
    compiled = native.function(swap, engine="interpreter")
    assert compiled(b=1, n=4, a=0) == swap(0, 1, 4)
    assert compiled(np.int32(0), np.int64(1), 4) == swap(0, 1, 4)
    assert compiled(0.5, np.float64(1), 4) == swap(0.5, 1.0, 4)
    with pytest.raises(TypeError, match=r"swap\(\) misses its argument 'n'"):
        compiled(1, 2)
    with pytest.raises(TypeError, match=r"swap\(\) takes 3 arguments, not 4"):
        compiled(1, 2, 3, 4)
    with pytest.raises(TypeError, match=r"swap\(\) cannot be given 'm' here"):
        compiled(1, 2, m=4)


def cube(x):
    return x**3 * math.sin(x)


INNER = native.grad(cube)


def through(x):
    return INNER(x) * x


@pytest.mark.parametrize("engine", ENGINES)
def test_derivatives_nest(engine: Any) -> None:
    twice = native.grad(native.grad(cube, engine=engine), engine=engine)
    expected = 6 * 0.7 * math.sin(0.7) + 6 * 0.7**2 * math.cos(0.7)
    expected -= 0.7**3 * math.sin(0.7)
    assert twice(0.7) == pytest.approx(expected, rel=1e-13)
    first = 3 * 0.7**2 * math.sin(0.7) + 0.7**3 * math.cos(0.7)
    inside = native.value_and_grad(through, engine=engine)(0.7)
    assert inside == pytest.approx((first * 0.7, expected * 0.7 + first), rel=1e-13)
    assert native.jvp(INNER, (0.7,), (2.0,), engine=engine) == pytest.approx(
        (first, 2 * expected), rel=1e-13
    )


def long_loop(x, n):
    y = x
    for _ in range(n):
        y = y + 0.001 * math.sin(y)
    return y


def test_plans_reports_and_memory_that_does_not_grow() -> None:
    plan = fixed_space(snapshots=8, stage=2000)
    small, large = (
        native.measure(native.grad(long_loop, plan=plan), 0.5, n)
        for n in (2_000, 200_000)
    )
    ends = long_loop(0.5 + 1e-6, 2_000), long_loop(0.5 - 1e-6, 2_000)
    assert small.value == pytest.approx((ends[0] - ends[1]) / 2e-6)
    (one,), (two,) = small.reports, large.reports
    assert two.length > 90 * one.length
    assert two.peak_snapshots <= 8 and two.longest_stage <= 2000


def squares(a):
    s = 0.0
    for i in range(len(a)):
        s += a[i] * a[i]
    return s


def test_stages_are_as_long_as_large_arguments() -> None:
    a = np.linspace(0.0, 1.0, 20_000)
    gradient = native.grad(squares, plan=logarithmic(stage=1_000))
    done = native.measure(gradient, a)
    assert np.array_equal(done.value, 2.0 * a)
    assert done.reports[0].reverses < 10


def test_a_plan_that_leaves_its_stages_open_has_no_short_ones() -> None:
    for plan in (None, fixed_space(snapshots=20), logarithmic()):
        gradient = native.grad(long_loop, plan=plan)
        short, long = (native.measure(gradient, 0.5, n) for n in (2_000, 300_000))
        assert short.value == native.grad(long_loop)(0.5, 2_000)
        assert [r.longest_stage for r in short.reports] == [short.reports[0].length]
        (divided,) = long.reports
        assert divided.reverses > 1
        # Of a loop that puts little on the tape, more than of one over arrays.
        assert 2_000_000 <= divided.longest_stage <= 4_000_000
    (by_length,) = native.measure(
        native.grad(long_loop, plan=segments()), 0.5, 2_000
    ).reports
    assert by_length.reverses > 50


def test_stages_of_much_tape_are_as_long_as_the_least() -> None:
    def much(x, n):
        a = x * np.ones(4)
        for i in range(n):
            a[i % 4] = a[i % 4] * a[(i + 1) % 4] * a[(i + 2) % 4]
        return a.sum()

    (report,) = native.measure(native.grad(much), 0.99, 40_000).reports
    assert report.reverses > 1 and report.longest_stage == 1_000_000


def descent(x, n):
    return x if n == 0 else math.sin(x) + descent(0.999 * x, n - 1)


def test_a_deep_recursion_has_stages_as_long_as_its_states() -> None:
    in_one = native.grad(descent)(0.5, 20_000)
    divided = native.measure(
        native.grad(descent, plan=fixed_space(snapshots=3, stage=50)), 0.5, 20_000
    )
    assert divided.value == pytest.approx(in_one, rel=1e-12)
    assert divided.reports[0].reverses < 20


def test_a_store_keeps_a_run_that_another_call_goes_on_with(tmp_path: Path) -> None:
    plan = fixed_space(snapshots=4, stage=500)
    derivative = native.grad(long_loop, plan=plan)
    kept = derivative(0.5, 2_000, store=tmp_path)
    assert kept == derivative(0.5, 2_000)
    assert derivative(0.5, 2_000, store=tmp_path) == kept


FAULTS = [
    (lambda x: 1.0 / x, (0.0,), "division by zero", "1.0 / x"),
    (lambda x: math.sqrt(x), (-1.0,), "math domain or range error", "math.sqrt(x)"),
    (lambda x: math.exp(x), (1000.0,), "math domain or range error", "math.exp(x)"),
    (lambda x: x**-1.5, (0.0,), "math domain or range error", "x**-1.5"),
    (
        lambda a: a[3],
        (np.ones(3),),
        "`3` is out of range of an array of length 3",
        "a[3]",
    ),
    (
        lambda a, b: a + b,
        (np.ones(3), np.ones(2)),
        "the lengths of two arrays differ",
        "a + b",
    ),
    (lambda n: n * n, (2**30,), "the int 1152921504606846976 is above 2..53", "n * n"),
    (lambda a, b: a @ b, (np.ones(3), np.ones(2)), "the lengths of two", "a @ b"),
    (lambda a, b: a @ b, (np.ones((2, 2)), np.ones(3)), "the lengths of two", "a @ b"),
    (lambda a, b: a * b, (np.ones((2, 3)), np.ones((3, 2))), "the shapes of", "a * b"),
    (lambda a: a[0, 2], (np.ones((2, 2)),), "index out of range", "a[0, 2]"),
]


@pytest.mark.slow("compiled")
@pytest.mark.parametrize("engine", ENGINES)
def test_faults_carry_the_line_of_python(engine: Any) -> None:
    for f, args, message, text in FAULTS:
        with pytest.raises(native.RunError, match=message) as caught:
            native.function(f, engine=engine)(*args)
        lines = str(caught.value).splitlines()
        assert lines[0].partition(":")[0].endswith("test_native.py")
        column = lines[2].index("^")
        assert lines[1][column:].startswith(text), lines


def prints(x):
    print((x, x))
    return x


def changes_argument(a):
    a[0] = 1.0
    return a


def loops_over_what_changes(n):
    a = np.zeros(n)
    s = 0.0
    for x in a:
        a[n - 1] = 1.0
        s += x
    return s


def changes_what_a_closure_sees(x):
    f = lambda y: x * y  # noqa: E731
    x = 2.0
    return f(x)


def two_kinds(x):
    y = (x, x) if x > 0 else x
    return y


def maybe_unbound(x):
    if x > 0:
        y = 1.0
    return y


def unbound_after_loop(n):
    for i in range(n):
        y = i
    return y


def shadows_a_global(x):
    if x > 100:
        SCALE = x
    return SCALE


def string(x):
    return "a"


def huge(x):
    return x + 2**53 + 9007199254740993


def object_attribute(x):
    return x.real


def slices(a):
    return a[1::0]


def unknown_name(x):
    return x + undefined  # noqa: F821


def raises(x):
    raise ValueError from TypeError()


def dict_of_outside(x):
    return TABLE[0] + x


TABLE = {0: 1}


def forever(x):
    return forever(x)


def starred(*xs):
    return 1.0


def derives_inside(x):
    return native.grad(forever)(x)


REFUSALS = [
    (
        derives_inside,
        (1.0,),
        "`native.grad` is not compiled itself; make the derivative outside",
        "native.grad(forever)",
    ),
    (
        prints,
        (1.0,),
        "a tuple of 2 is not printed here; print numbers",
        "(x, x)",
    ),
    (
        changes_argument,
        (np.ones(2),),
        "write `a = a.copy\\(\\)` before it",
        "a[0] = 1.0",
    ),
    (loops_over_what_changes, (2,), "`a` is assigned in the loop over its", "a:"),
    (changes_what_a_closure_sees, (1.0,), "by a default: `x=x`", "lambda y"),
    (two_kinds, (1.0,), "a tuple of 2 on one way and a float on another", "(x, x)"),
    (maybe_unbound, (1.0,), "`y` has no value here on some way", "y"),
    (unbound_after_loop, (1,), "`y` has no value here on some way", "y"),
    (shadows_a_global, (1.0,), "`SCALE` has no value here on some way", "SCALE"),
    (string, (1.0,), "a str is not a value of a compiled function", '"a"'),
    (huge, (1,), "an int above 2\\*\\*53 would be rounded", "9007199254740993"),
    (object_attribute, (1.0,), "`.real` of a float is not compiled", "x.real"),
    (slices, (np.ones(2),), "the step of a slice is a constant int, not zero", "1::0"),
    (unknown_name, (1.0,), "`undefined` has no value here", "undefined"),
    (raises, (1.0,), "`from` and keyword arguments are not compiled", "raise"),
    (dict_of_outside, (1.0,), "`TABLE` is a dict, which is not compiled", "TABLE"),
    (forever, (1.0,), "this function never returns", "def forever"),
    (starred, (), "`\\*` among parameters is not compiled", "def starred"),
]


@pytest.mark.parametrize(("f", "args", "message", "text"), REFUSALS)
def test_what_is_outside_the_subset_is_refused_with_its_line(
    f: Any, args: tuple, message: str, text: str
) -> None:
    with pytest.raises(native.CompileError, match=message) as caught:
        native.function(f, engine="interpreter")(*args)
    lines = str(caught.value).splitlines()
    assert lines[1][lines[2].index("^") :].startswith(text)


def test_arguments_that_are_no_values_are_refused() -> None:
    compiled = native.function(cube, engine="interpreter")
    for bad, message in [
        ({1.0}, "is not a value of a compiled function; pass numbers"),
        ("a", "is not a value of a compiled function"),
        (2**60, "above 2..53 and would be rounded; pass a float"),
        (np.ones((1,) * 5), "an array of 5 dimensions .* pass at most 4"),
        (np.ones(2, complex), "an array of `complex128`"),
        (
            np.arange(2, dtype=np.int32),
            "an array of `int32` is not a value .* pass `a.astype.float.`",
        ),
        (np.ones(2, np.float32), "an array of `float32` is not a value"),
        (np.float32(1.5), "of type `float32` is not a value of a compiled function"),
    ]:
        with pytest.raises(GradientTypeError, match=message):
            compiled(bad)
    with pytest.raises(GradientTypeError, match="is not a Python function"):
        native.function(math.sin)
    with pytest.raises(GradientTypeError, match="is no Python function that could be"):
        native.grad(math.sin)
    with pytest.raises(PlanError, match="`argnums=-1` names no arguments"):
        native.grad(cube, -1)
    with pytest.raises(PlanError, match="names an argument twice"):
        native.grad(cube, (0, 0))
    with pytest.raises(GradientTypeError, match="a tangent for each primal"):
        native.jvp(cube, (1.0,), (np.ones(2),))
    with pytest.raises(GradientTypeError, match="a tangent of shape"):
        native.jvp(cube, (np.ones(3),), (np.ones(2),))
    with pytest.raises(native.CompileError, match="a gradient is of a function that"):
        native.grad(swap, engine="interpreter")(1.0, 2.0, 3)
    with pytest.raises(native.CompileError, match="and no derivative is taken"):
        native.grad(cube, engine="interpreter")(True)


def test_a_function_without_a_file_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    return x\n", names)
    with pytest.raises(native.CompileError, match="cannot be read, since it is in no"):
        native.function(names["f"])(1.0)


def test_the_module_is_a_decorator() -> None:
    @native  # pyright: ignore[reportCallIssue]
    def local(x):
        return x * SCALE

    assert repr(local).startswith("<native function test_the_module_is_a_decorator")
    assert local.__name__ == "local"
    assert local(4.0) == 8.0
    assert native.grad(local)(4.0) == 2.0
