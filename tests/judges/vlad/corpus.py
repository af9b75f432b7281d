"""Functions with arguments: what users write, one of each construct.

`ROWS` has them by name: the function, its arguments, and by which it is differentiated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from benchmarks.native.functions import SMALL

from retape import native

# pyright: basic


@dataclass(frozen=True)
class Row:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    by: tuple[int, ...] = ()


ROWS: dict[str, Row] = {f.__name__: Row(f, *call) for f, call in SMALL.items()}


def row(*args: Any, by: tuple[int, ...] = ()) -> Callable[[Any], Any]:
    """A row of a function; a second one, of other arguments, has a number."""

    def add(function: Any) -> Any:
        name, number = function.__name__, 2
        while name in ROWS:
            name, number = f"{function.__name__} {number}", number + 1
        ROWS[name] = Row(function, args, by)
        return function

    return add


# Control flow


@row(1.5, 12)
@row(0.01, 9)
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


@row(9)
def backwards(n):
    s = 0
    for i in range(n, 0, -2):
        s = s * 10 + i
    return s


@row(0, 10, 3)
@row(10, 0, -4)
@row(3, 3, 1)
def any_step(a, b, c):
    s = 0
    for i in range(a, b, c):
        s = s * 3 + i
    return s


@row(0.7, 40, by=(0,))
def long_loop(x, n):
    y = x
    for i in range(n):
        if i % 7 == 6:
            continue
        y = y + 0.05 * math.sin(y)
    return y


@row(0.8, by=(0,))
def until_it_settles(a):
    x = 1.0
    while abs(x * x - a) > 1e-13:
        x = 0.5 * (x + a / x)
    return x


@row(0, 1, 30)
@row(0.5, 1, 3)
def swap(a, b, n):
    for _ in range(n):
        a, b = b, a + b
    return (a, b), a


@row(1)
@row(-1.0)
def nothing(x):
    if x > 0:
        return None
    assert x < 1
    return None


@row(0.3, by=(0,))
@row(-0.3, by=(0,))
def ways_out(x):
    if x > 0:
        if x > 0.2:
            return 2.0 * x
    elif x < -0.1:
        return math.sin(x)
    return x * x


# Numbers and conditions


@row(7.5, 2.0)
@row(-7.5, 2.1)
def floors(x, y):
    return x // y, x % y, int(x), math.floor(x), math.ceil(x), x**3, 2**3, abs(x) ** 0.5


@row(1, 2, 3)
@row(2.0, 1, 1)
def chained(a, b, c):
    return (
        a < b < c,
        a <= b != c,
        not a > b,
        (a < b and b < c) or c == 1,
        max(a, b, b),
    )


@row(0.3, 2, by=(0,))
@row(3.3, 1, by=(0,))
def nested_conditions(x, n):
    """Chains of `and` and `or` within one another."""
    if ((x > 0.1 and (n > 1 or (x > 3.0 and not n == 2))) or x > 9.0) and (
        n < 5 or (x < 1.0 and (n < 7 or (x > 0.5 and n == 9)))
    ):
        return x * x * n
    return x * n


@row(0, -0.5)
def zeros_of_ints(n, x):
    k = 0
    for i in range(2):
        k += -n * i
    products = math.atan2(0.0, n * -1), math.atan2(0.0, -n), math.atan2(0.0, k)
    quotients = math.atan2(0.0, float(n // -3)), math.atan2(0.0, n % -3)
    rounded = math.atan2(0.0, math.ceil(x)), math.atan2(0.0, int(x))
    return products, quotients, rounded, math.atan2(0.0, math.floor(0.0 * x)), -0


@row(0.7, 3, -2)
@row(0.7, 0, -3)
def places_of_products(x, a, b):
    items = np.full(3, x)
    p, q = a * b, b * a - a * b
    first = items[p % 3] * math.atan2(p, -1.0) + math.atan2(-p, -1.0)
    return first + items[q] * math.atan2(p + q, -1.0) + math.atan2(q - p, -1.0)


@row(4.0, by=(0,))
def functions_of_numbers(x):
    a = math.log(x) + math.log(x, 3.0) + math.exp(-x) + math.pow(x, 1.5)
    b = math.asin(0.1 * x) + math.acos(0.1 * x) + math.atan(x) + math.atan2(x, 2.0)
    a += math.tan(0.1 * x)
    c = math.hypot(x, 3.0) + math.erf(0.1 * x) + math.tanh(0.2 * x) + math.degrees(x)
    d = math.log1p(x) + math.expm1(0.1 * x) + math.radians(x) + abs(-x) + math.fabs(x)
    return a + b + c + d + min(x, 5.0, x * x) + max(x, 1.0)


# Calls


@row(10)
def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


@row(10)
@row(7)
def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


@row(1.5, 4, by=(0,))
@row(1.5, 5, by=(0,))
def local_functions_that_call_one_another(x, n):
    def even(k):
        return x if k == 0 else 1.1 * odd(k - 1)

    def odd(k):
        return -x * x if k == 0 else even(k - 1) + x

    return even(n)


@row(0.4, 7, by=(0,))
def three_local_functions(x, n):
    scale = 1.0 + x

    def first(k, y):
        return y if k <= 0 else second(k - 1, y * scale)

    def second(k, y):
        return first(k - 1, y + x) if k % 2 == 0 else third(k, math.sin(y))

    def third(k, y, by=0.5):
        return by * y if k <= 1 else first(k - 2, by * y)

    return first(n, x) + third(n, x, by=x)


@row(50)
def a_local_recursion(n):
    def down(k, total):
        if k == 0:
            return total
        return down(k - 1, total + k)

    return down(n, 0)


@row(0.5, 60, by=(0,))
def a_deep_recursion(x, n):
    return x if n == 0 else math.sin(x) + a_deep_recursion(0.99 * x, n - 1)


SETTINGS = ModuleType("settings")
SETTINGS.rate = 2.0


@row(4.0)
def constants_of_modules(x):
    infinite = math.inf, -math.inf, math.nan * x, math.atan2(-0.0, -1.0)
    return SETTINGS.rate * x, infinite, 9007199254740990 + 1


@row(5, 1.5, by=(1,))
def defaults_of_lambdas(n, y):
    s = 0.0
    for i in range(n):
        f = lambda x, i=i: x * i * y  # noqa: E731
        s += f(2.0)
    return s


def compose(f, g, x):
    return f(g(x))


@row(0.3, by=(0,))
def composed(x):
    a = x + 1.0
    return compose(lambda y: y * a, math.sin, x) + compose(math.exp, lambda y: y / a, x)


def weighted(x, y=2.0, z=3):
    return x * y + z


@row(0.3, by=(0,))
def keywords_and_defaults(x):
    return weighted(x) + weighted(x, z=1) * weighted(y=x, x=x, z=2) + weighted(x, x, 4)


def scaler(c):
    def scale(x):
        return (lambda y: c * y)(x)

    return scale


TWICE, THRICE = scaler(2.0), scaler(3.0)


@row(4.0)
def closures_that_look_alike(x):
    return TWICE(x), THRICE(x)


@row(0.4, 3, by=(0,))
def tuples_of_numbers(x, n):
    t = (x, (2.0 * x, n), n)
    (a, (b, c)), d = (t[0], t[1]), t[-1]
    return a * b + c * d


@row(0.4, 3, by=(0,))
def tuples_taken_apart(x, n):
    t = (x, (2.0 * x, n), n)
    a, (b, c), d = t
    for _ in range(n):
        a, t = t[1][0] * 0.5, (a, (b * a, c), d)
    return a * b + t[0] * d + c


# Arrays


@row(np.arange(4.0), 3)
def last_item(a, n):
    b = a.copy()
    for i in range(-1, -n - 1, -1):
        b[i] += i
    return b, b[-1], len(b), b.size


@row(np.arange(6.0).reshape(2, 3))
def shapes(a):
    r, c = a.shape
    b = np.zeros((c, r))
    for i in range(r):
        for j in range(c):
            b[j, i] = a[i, j]
    return b, b[-1, -1], a.ndim, (2.0 * a - a / 4.0) ** 2, -a


@row(np.arange(4.0), np.array([0, 2, 1]), by=(0,))
def gathered(a, idx):
    s = 0.0
    for i in range(len(idx)):
        s = s * 0.7 + a[idx[i]]
    return s


@row(np.array([[0, 1], [1, 0]]), np.ones(2), by=(1,))
def arrays_of_ints(t, a):
    return a[t[1, 0]] * t[0, 1] + t[-1, -1] + t.shape[0] + len(t)


@row(np.array([1, 0]))
def an_array_of_ints_is_returned(t):
    return t, t.shape


@row(np.array([1.0, -2.0, 4.0]))
def items(a):
    s = 0.0
    for x in a:
        if x < 0.0:
            continue
        s += math.sqrt(x)
    return s, np.sin(a), np.dot(a, a), sum(a), a.sum()


@row(np.array([0.3, -0.7, 1.1]), 7, by=(0,))
def named_twice(a, n):
    """Arrays with two names, and arrays that are changed after their use."""
    a = a.copy()
    b = a
    s = 0.0
    for i in range(n):
        c = a * b + a
        c[i % 3] = 0.5 * c[0] * c[1]
        d = c * c
        c[1] = 0.1 * i
        e = np.exp(-d)
        f = e
        e = e * f - c
        b = 0.3 * e + 0.1 * b
        a = a * 0.9 + 0.1 * b * b
        s += np.sum(d + e) + c[2]
    return s


@row(np.array([0.3, 0.7]), np.array([1.1, -0.4]), 0.3, 3, by=(0, 1, 2))
def whole_arrays(a, b, h, k):
    c = np.sin(a) * b + h
    d = np.exp(-c * c) / (2.0 + np.cos(b))
    e = (a * a + 1.0) ** 1.5 - 2.0 ** (0.1 * b) + np.log(3.0 + a * a)
    f = c
    for i in range(k):
        c = c + 0.1 * d * i - h * np.tanh(c)
    g = (d * e + f * c) / (1.0 + c * c) - np.sqrt(a * a + b * b + 0.5)
    return np.sum(g * g) + (a * h - b).sum() - g.sum()


@row(np.arange(3.0), np.ones(3), 0.7, by=(0, 1, 2))
def more_operands_than_one_operator_has(a, b, h):
    c = a + h * b + a * 2.0 + b * h * h - a / 3.0 + (h + 1.0) * b + (h + 2.0) * a
    d = c * h + (h - 1.0) * c + (h - 2.0) * a + (h - 3.0) * b - (h - 4.0) * c * b
    return np.sum(d + (h - 5.0) * a + (h - 6.0) * c - (h - 7.0) * b)


@row(np.ones(0), 0.0, by=(0, 1))
def quotients_of_nothing(a, x):
    return np.sum(a + 1.0 - a / x) + np.sum(a / a)


@row(np.array([[0.4, 0.1], [-0.2, 0.3]]), 6, by=(0,))
def products_of_matrices(a, n):
    """Both factors are one array, which is assigned to afterwards."""
    a = a.copy()
    total = 0.0
    for i in range(n):
        b = a @ a
        kept = a
        v = b @ np.ones(2)
        a = a.copy()
        a[0, 1] = 0.3 * math.sin(b[1, 0]) + 0.1 * v[0]
        a[1, 0] = 0.5 * a[1, 0] + 0.01 * i
        w = kept[0, 0] * v
        v[1] = v[1] * 0.5
        total += v[1] + v @ w + kept[0, 1]
    return total


@row(np.array([0.3, -0.7, 1.1]), 12, by=(0,))
def written_between_products(a, n):
    w = np.zeros(3)
    s = 0.0
    for i in range(3):
        w[i] = a[i]
    for k in range(n):
        s += w @ a
        w[k % 3] = 0.9 * w[k % 3] + 0.1 * math.sin(s)
    return s


@row(1.5, 4, by=(0,))
def arrays_from_left_to_right(x, n):
    a, i = np.zeros(n), 0
    for k in range(n):
        a[k] = x * (k + 1)
    a[i], i = 5.0, 1
    i, a[i] = 2, x * x
    (a[i], s), a[3] = (a[3], x), a[i]
    t = u, v = s, 2.0 * s
    a[0] = w = u + v
    for k in range(n // 2):
        a[k], a[n - 1 - k] = a[n - 1 - k], a[k]
    return a[0] + 10.0 * a[1] + 100.0 * a[2] + 1000.0 * a[3] + t[1] + w


@row(1.5, 4, by=(0,))
def arrays_that_are_swapped(x, n):
    b, c = np.zeros(n), np.ones(n)
    for i in range(7):
        b[i % n] += x * c[(i + 1) % n]
        b, c = c, b
    return np.sum(b * c * c)


@row(1.5, 4, by=(0,))
def arrays_that_are_returned(x, n):
    def made(c):
        b = c.copy()
        b[0] = x
        return b, np.full(n, x)

    c = np.ones(n)
    b, d = made(c)
    b[1], d[0] = d[1], b[0]
    return np.sum(b * c * d)


@row(1.5, 4, by=(0,))
def arrays_in_tuples(x, n):
    b, c = np.zeros(n), np.ones(n)
    (d, e), s = (np.full(n, x), c.copy()), x
    b[0], e[1] = s, 2.0
    d[0] = x
    f, g = c, np.full(n, x)
    b[1] = g[1] = x
    return np.sum(b * d) + np.sum(c * e) + np.sum(f * g)


@row(np.array([0.9, 0.3, 0.4]), 5, by=(0,))
def best_so_far(a, n):
    best, now = np.zeros(3), a.copy()
    for i in range(n):
        now[i % 3] = now[i % 3] * 1.5 - 0.1
        if now[0] + now[1] > best[0] + best[1] + 0.01:
            best = now.copy()
    return best @ a


# What different paths return


@row(1.0, 3)
@row(-1.0, 3)
def an_int_or_a_float(x, n):
    if x > 0:
        return n
    return x


@row(1.0, 3)
@row(-1.0, 3)
@row(0.0, 3)
def pairs_of_either(x, n):
    if x > 0:
        return n, (x, n)
    if x < 0:
        return x, (n, n)
    return n, (x, x)


@row(1.0, 3)
@row(-1.0, 3)
def a_choice_of_either(x, n):
    return n if x > 0 else x


@row(0.4, by=(0,))
@row(-0.4, by=(0,))
def zero_or_more(x):
    """As users write it: an int where a float is meant."""
    if x < 0:
        return 0
    return x * x


# Functions of one line, of which each has a text of its own

ONE_MORE, TWO_MORE = (lambda x: x + 1.0), (lambda x: x + 2.0)
ONE_WITHIN = lambda x: (lambda y: y * 3.0)(x) + 1.0  # noqa: E731


@row(4.0)
def functions_of_one_line(x):
    return ONE_MORE(x), TWO_MORE(x), ONE_WITHIN(x)


# An array that is given twice is two

TABLE = np.arange(24.0).reshape(4, 6) / 7


@row(TABLE, TABLE, by=(0, 1))
def arrays_that_are_one(a, b):
    return np.sum(a * b * a)


# Derivatives within functions: second ones, in reverse over reverse and forward


def cube(x):
    return x**3 * math.sin(x)


def waves(a, b):
    return np.sum(np.sin(a * b) * a**3 / (1.0 + b * b))


def products(x, a):
    y = a @ (x * x)
    return np.tanh(y) @ (x @ a)


SLOPE_OF_CUBE = native.grad(cube, (0,), engine="interpreter")
SLOPES_OF_WAVES = native.grad(waves, (0, 1), engine="interpreter")
SLOPES_OF_PRODUCTS = native.grad(products, (0, 1), engine="interpreter")
VECTORS = np.random.default_rng(7).uniform(-2.0, 2.0, (4, 5))


@row(0.7, 2.0, by=(0, 1))
def along_a_slope(x, u):
    (dx,) = SLOPE_OF_CUBE(x)
    return dx * u


@row(*VECTORS, by=(0, 1))
def along_whole_arrays(a, b, u, v):
    da, db = SLOPES_OF_WAVES(a, b)
    return da @ u + np.sum(db * v)


@row(VECTORS[0, :3], VECTORS[:3, :3], VECTORS[1, :3], VECTORS[1:, 2:], by=(0, 1))
def along_products(x, a, u, v):
    dx, da = SLOPES_OF_PRODUCTS(x, a)
    return dx @ u + np.sum(da * v)
