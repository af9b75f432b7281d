"""Python functions, compiled: CPython and finite differences are the oracles."""

import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from retape import fixed_space, logarithmic, native, segments
from retape._errors import GradientTypeError, PlanError
from tests.engines.vlad.support.cases import ENGINES

ROOT = Path(__file__).parents[4]


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TEN = _loaded(ROOT / "benchmarks" / "native" / "functions.py")
CASES = [(f, args, argnums) for f, (args, argnums) in TEN.SMALL.items()]
NAMES = [f.__name__ for f, *_ in CASES]


def _moved(args: tuple, which: int, place: Any, h: float) -> tuple:
    moved = list(args)
    if isinstance(args[which], np.ndarray):
        moved[which] = args[which].copy()
        moved[which][place] += h
    else:
        moved[which] = args[which] + h
    return tuple(moved)


def _differences(f: Any, args: tuple, which: int) -> Any:
    """The gradient by one argument, by central differences."""
    h = 1e-6

    def by(place: Any) -> float:
        ends = (f(*_moved(args, which, place, s * h)) for s in (1, -1))
        return (next(ends) - next(ends)) / (2 * h)

    if not isinstance(args[which], np.ndarray):
        return by(())
    return np.array([by(p) for p in np.ndindex(args[which].shape)]).reshape(
        args[which].shape
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("f", "args", "argnums"), CASES, ids=NAMES)
def test_ten_functions_are_what_python_computes(
    f: Any, args: tuple, argnums: tuple, engine: Any
) -> None:
    expected = f(*args)
    value, gradient = native.value_and_grad(
        f, argnums, engine=engine, plan=logarithmic(stage=500)
    )(*args)
    assert value == pytest.approx(expected, rel=1e-13)
    assert native.function(f, engine=engine)(*args) == value
    for which, part in zip(argnums, gradient, strict=True):
        expected = _differences(f, args, which)
        assert part == pytest.approx(expected, rel=2e-5, abs=1e-7), which


def test_the_implementations_have_the_same_bits() -> None:
    """Gradients of compiled code sum the adjoints of a call's operands by calls."""
    for f, args, argnums in CASES:
        results = [
            native.value_and_grad(f, argnums, engine=engine)(*args)
            for engine in ENGINES
        ]
        for value, gradient in results[1:]:
            assert value == results[0][0], f.__name__
            for a, b in zip(gradient, results[0][1], strict=True):
                close = np.allclose(a, b, rtol=1e-13, atol=0.0)
                assert close if results[-1][1] is gradient else np.array_equal(a, b)


FORWARD = [(f, args) for f, args, _ in CASES if not any(type(a) is int for a in args)]
"""Those without ints, which have no tangents."""


@pytest.mark.parametrize(("f", "args"), FORWARD)
def test_forward_mode_agrees_with_reverse_mode(f: Any, args: tuple) -> None:
    active = args
    numbers = range(len(args))
    along = tuple(np.ones_like(a) if hasattr(a, "shape") else 1.0 for a in active)
    _, tangent = native.jvp(f, active, along)
    gradient = native.grad(f, tuple(numbers))(*args)
    total = sum(float(np.sum(part)) for part in gradient)
    assert tangent == pytest.approx(total, rel=1e-10)


def classify(x, y=2.0, *, scale=1.0):
    return x * y * scale


def early(x, n):
    """Break, continue, and a return from inside two loops."""
    total = 0.0
    for i in range(n):
        if i % 3 == 0:
            continue
        j = 0
        while True:
            j += 1
            if j > i:
                break
            if x * i * j > 40.0:
                return total, -j
        total += x * j
        if total > 1e4:
            break
    return total, n


def floors(x, y):
    return x // y, x % y, int(x), math.floor(x), math.ceil(x), x**3, 2**3, abs(x) ** 0.5


def chained(a, b, c):
    return (
        a < b < c,
        a <= b != c,
        not a > b,
        (a < b and b < c) or c == 1,
        max(a, b, c),
    )


def recursive(n):
    def down(k, total):
        if k == 0:
            return total
        return down(k - 1, total + k)

    return down(n, 0)


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def swap(a, b, n):
    for _ in range(n):
        a, b = b, a + b
    return (a, b), a


def backwards(n):
    s = 0
    for i in range(n, 0, -2):
        s = s * 10 + i
    return s


def any_step(a, b, c):
    s = 0
    for i in range(a, b, c):
        s = s * 3 + i
    return s


def default_closure(n):
    s = 0.0
    for i in range(n):
        f = lambda x, i=i: x * i  # noqa: E731
        s += f(2.0)
    return s


def compose(f, g, x):
    return f(g(x))


def composed(x):
    a = x + 1.0
    return compose(lambda y: y * a, math.sin, x) + compose(math.exp, lambda y: y / a, x)


def last_item(a, n):
    b = a.copy()
    for i in range(-1, -n - 1, -1):
        b[i] += i
    return b, b[-1], len(b), b.size


def shapes(a):
    r, c = a.shape
    b = np.zeros((c, r))
    for i in range(r):
        for j in range(c):
            b[j, i] = a[i, j]
    return b, b[-1, -1], a.ndim, (2.0 * a - a / 4.0) ** 2, -a


def items(a):
    s = 0.0
    for x in a:
        if x < 0.0:
            continue
        s += math.sqrt(x)
    return s, np.sin(a), np.dot(a, a), sum(a), a.sum()


def nothing(x):
    if x > 0:
        return None
    assert x < 1
    return None


PROGRAMS = [
    (early, (1.5, 12)),
    (early, (0.01, 9)),
    (floors, (7.5, 2.0)),
    (floors, (-7.5, 2.0 + 0.1)),
    (chained, (1, 2, 3)),
    (chained, (2.0, 1, 1)),
    (recursive, (50,)),
    (factorial, (10,)),
    (even, (10,)),
    (even, (7,)),
    (swap, (0, 1, 60)),
    (swap, (0.5, 1, 3)),
    (backwards, (9,)),
    (any_step, (0, 10, 3)),
    (any_step, (10, 0, -4)),
    (any_step, (3, 3, 1)),
    (default_closure, (5,)),
    (composed, (0.3,)),
    (last_item, (np.arange(4.0), 3)),
    (shapes, (np.arange(6.0).reshape(2, 3),)),
    (items, (np.array([1.0, -2.0, 4.0]),)),
    (nothing, (1,)),
    (nothing, (-1.0,)),
]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-14, atol=0.0)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


@pytest.mark.parametrize("engine", ENGINES)
def test_programs_do_what_python_does(engine: Any) -> None:
    for f, args in PROGRAMS:
        assert _same(native.function(f, engine=engine)(*args), f(*args)), f.__name__


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


def second(x):
    return native.grad(cube, engine="interpreter")(x)


def cube(x):
    return x**3 * math.sin(x)


INNER = native.grad(cube)


def through(x):
    return INNER(x) * x


@pytest.mark.parametrize("engine", ENGINES)
def test_a_recursion_of_ints_has_ints(engine: Any) -> None:
    compiled = native.function(factorial, engine=engine)
    assert type(compiled(10)) is int
    assert compiled(2.5) == factorial(2.5)
    with pytest.raises(native.RunError, match="is not below 2..53 and may be rounded"):
        compiled(25)


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
    assert small.value == pytest.approx(_differences(long_loop, (0.5, 2_000), 0))
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
    print(x)
    return x


def lists(x):
    a = [x, x]
    return a[0]


def changes_argument(a):
    a[0] = 1.0
    return a


def changes_alias(n):
    a = np.zeros(n)
    b = a
    a[0] = 1.0
    return b[0]


def changes_one_of_two(n):
    a, b = 0.0, 1.0
    c = np.zeros(n)
    d = np.ones(n)
    e = c if a < b else d
    c[0] = 5.0
    return e[0]


def loops_over_what_changes(n):
    a = np.zeros(n)
    s = 0.0
    for x in a:
        a[n - 1] = 1.0
        s += x
    return s


def captures_then_changes(n):
    a = np.zeros(n)
    f = lambda i: a[i]  # noqa: E731
    a[0] = 1.0
    return f(0)


def returns_its_argument(a):
    return a


def changes_through_a_call(n):
    a = np.zeros(n)
    b = returns_its_argument(a)
    a[0] = 1.0
    return b[0]


def changes_a_tuples_item(n):
    a = np.zeros(n)
    t = (a, 1.0)
    a[0] = 1.0
    return t[0][0]


def changes_what_survives_a_turn(n):
    a = np.zeros(n)
    b = np.zeros(n)
    for _ in range(3):
        a[0] += 1.0
        b = a
    return b[0]


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
    return a[1:]


def unknown_name(x):
    return x + undefined  # noqa: F821


def raises(x):
    raise ValueError


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
        "printing is not compiled; return what is to be printed",
        "print(x)",
    ),
    (lists, (1.0,), "lists are not compiled; use a tuple", "[x, x]"),
    (
        changes_argument,
        (np.ones(2),),
        "write `a = a.copy\\(\\)` before it",
        "a[0] = 1.0",
    ),
    (changes_alias, (2,), "the array `a` may have another name", "a[0] = 1.0"),
    (changes_one_of_two, (2,), "the array `c` may have another name", "c[0] = 5.0"),
    (loops_over_what_changes, (2,), "`a` is assigned in the loop over its", "a:"),
    (captures_then_changes, (2,), "the array `a` may have another name", "a[0] = 1.0"),
    (changes_through_a_call, (2,), "the array `a` may have another name", "a[0] = 1.0"),
    (changes_a_tuples_item, (2,), "the array `a` may have another name", "a[0] = 1.0"),
    (changes_what_survives_a_turn, (2,), "the array `a` may have", "a[0] += 1.0"),
    (changes_what_a_closure_sees, (1.0,), "by a default: `x=x`", "lambda y"),
    (two_kinds, (1.0,), "a tuple of 2 on one way and a float on another", "(x, x)"),
    (maybe_unbound, (1.0,), "`y` has no value here on some way", "y"),
    (unbound_after_loop, (1,), "`y` has no value here on some way", "y"),
    (shadows_a_global, (1.0,), "`SCALE` has no value here on some way", "SCALE"),
    (string, (1.0,), "a str is no value of a compiled function", '"a"'),
    (huge, (1,), "an int above 2\\*\\*53 would be rounded", "9007199254740993"),
    (object_attribute, (1.0,), "`.real` of a float is not compiled", "x.real"),
    (slices, (np.ones(2),), "slices are not compiled; write a loop", "a[1:]"),
    (unknown_name, (1.0,), "`undefined` has no value here", "undefined"),
    (raises, (1.0,), "exceptions are not compiled; return a flag", "raise"),
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
        ([1.0], "is no value of a compiled function; pass numbers"),
        ("a", "is no value of a compiled function"),
        (2**60, "above 2..53 and would be rounded; pass a float"),
        (np.ones((1, 1, 1)), "an array of 3 dimensions"),
        (np.ones(2, complex), "an array of `complex128`"),
        (
            np.arange(2, dtype=np.int32),
            "an array of `int32` is no value .* pass `a.astype.float.`",
        ),
        (np.ones(2, np.float32), "an array of `float32` is no value"),
        (np.float32(1.5), "of type `float32` is no value of a compiled function"),
    ]:
        with pytest.raises(GradientTypeError, match=message):
            compiled(bad)
    with pytest.raises(GradientTypeError, match="is no Python function"):
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
    with pytest.raises(native.CompileError, match="by which no derivative is taken"):
        native.grad(cube, engine="interpreter")(True)


def test_a_function_without_a_file_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    return x\n", names)
    with pytest.raises(native.CompileError, match="cannot be had, since it was not"):
        native.function(names["f"])(1.0)


def test_the_module_is_a_decorator() -> None:
    @native  # pyright: ignore[reportCallIssue]
    def local(x):
        return x * SCALE

    assert repr(local).startswith("<native function test_the_module_is_a_decorator")
    assert local.__name__ == "local"
    assert local(4.0) == 8.0
    assert native.grad(local)(4.0) == 2.0
