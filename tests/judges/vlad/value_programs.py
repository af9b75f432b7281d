"""Programs with lists, records, dicts, more dimensions, prints and exceptions.

Further rows of the table of `numpy_programs`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tests.judges.vlad.numpy_programs import U, refused, right

# pyright: basic
# ruff: noqa: B905, C416, PERF401 - as Numba's users write it

T = np.sin(np.arange(24.0)).reshape(2, 3, 4) + 2.0


class Point(NamedTuple):
    """A place, and a weight."""

    x: float
    y: float
    weight: float = 2.0

    def norm(self, power=2):
        return (self.x**power + self.y**power) * self.weight


@dataclass(frozen=True)
class Spring:
    """What a mass hangs on."""

    stiffness: float
    damping: float = 0.1
    mass: float = 4.0

    @property
    def rate(self):
        return self.stiffness / (1.0 + self.damping)

    def force(self, x, v):
        return -self.rate * x - self.damping * v


@dataclass
class Particles:
    """Arrays that belong together."""

    place: np.ndarray
    speed: np.ndarray
    time: float = 0.0


HOOK = Spring(1.5)


# what a loop does that nothing broke


@right(U, 6)
def first_that_is_large(u, n):
    s = 0.0
    for i in range(n):
        if u[i] > 5.0 * u[0]:
            s = u[i] * 3.0
            break
        s += u[i]
    else:
        s = -s
    while abs(s) < 40.0:
        s = s * 2.0
    else:
        s = s * u[1]
    return s


@right(U, 20)
def sum_of_primes(u, n):
    s = 0.0
    for i in range(2, n):
        for j in range(2, i):
            if i % j == 0:
                break
        else:
            s += i * u[1]
            if s > 1000.0:
                break
            continue
        s += u[0]
    else:
        s = -s
    return s


@refused(U, 3)
def second_name_after_a_loop(u, n):
    b, c = np.zeros(3), np.ones(3)
    for i in range(n):
        if u[i] > 100.0:
            break
    else:
        c = b
    b[0] = u[1]
    return c[0] + b[0]


# what is not given


@right(U)
def weights_not_given(u, w=None, scale=None):
    if w is None:
        w = np.ones(len(u))
    s = 2.0 if scale is None else scale * scale
    if scale is not None and scale > 1.0:
        s = s + 1.0
    if scale is not None or u[0] > 10.0:
        s = s * 2.0
    return np.sum(u * w) * s


@right(U)
def given_to_some_calls(u):
    def scaled(x, by=None):
        return x * u[0] if by is None else x * by

    return scaled(1.5) + scaled(2.0, u[1]) + scaled(u[2], by=3.0)


@refused(U)
def none_on_one_way(u):
    y = None
    if u[0] > 0.0:
        y = u[0]
    return y


# lists


@right(U, 5)
def appended(u, n):
    out = []
    for i in range(n):
        out.append(u[i % len(u)] * i)
    return sum(out) + out[-1] * out[2]


@right(U, 20)
def a_long_list(u, n):
    xs = [u[0], 0.5]
    for _ in range(n):
        xs.append(0.5 * xs[-1] + 0.3 * xs[-2] + u[1])
    total = 0.0
    for i, x in enumerate(xs):
        total += x * (i % 3)
    return total + len(xs)


@right(U)
def a_list_that_shrinks(u):
    stack = [u[0], u[1]]
    total = 0.0
    while stack:
        x = stack.pop()
        total += x * x
        if x > 0.15:
            stack.append(x * 0.5)
            stack.append(x * 0.25)
    return total


@right(U)
def items_are_written(u):
    xs = [0.0] * 4
    xs[1] = u[1]
    xs[-1] += u[2] * u[3]
    xs[0], xs[2] = xs[1], 3.0
    xs[2] *= u[0]
    return xs[0] * xs[2] + xs[3]


@right(U)
def comprehensions(u):
    squares = [x * x for x in u if x > 0.0]
    sums = [a + b * i for i, a in enumerate(squares) for b in (u)]
    return sum(squares) * max(sums) + min(x for x in u) + sum(w * 0.5 for w in sums)


@right(U, 3)
def lists_as_arrays(u, n):
    xs = [u[i] * i for i in range(n)]
    a = np.array(xs)
    b = np.array([u[0], u[1] * 2.0, 1.0])
    c = np.array([[u[0], 0.0], [1.0, u[3]]])
    return (a * b).sum() + (c @ c).sum() + np.mean(xs) + np.linalg.norm(xs)


@right(U, 3)
def a_list_of_arrays(u, n):
    kept = [u]
    for _ in range(n):
        kept.append(kept[-1] * 0.5 + u)
    rows = np.array(kept)
    total = 0.0
    for each in kept:
        total += each[1] * each.sum()
    return total + (rows[1] * rows[-1]).sum() + len(kept)


@right(U)
def a_list_of_pairs(u):
    pairs = [(0, u[0])]
    for i in range(1, len(u)):
        pairs.append((i, u[i] * pairs[-1][1]))
    total = 0.0
    for i, x in pairs:
        total += u[i] * x
    return total + pairs[2][1] + np.array(pairs)[1, 1]


@right([0.5, 1.5, -0.25])
def a_list_is_given(xs):
    total = 0.0
    for i, x in enumerate(xs):
        total += x**2 * (i + 1)
    return total + max(xs) * len(xs)


@right(U, 4)
def a_list_is_returned(u, n):
    xs, flags, places = [], [], []
    for i in range(n):
        xs.append(u[i])
        flags.append(u[i] > 0.0)
        places.append(i)
    return xs, flags, places, [(i, u[i]) for i in range(2)]


def _filled(u, n):
    out = []
    for i in range(n):
        out.append(u[i] * 2.0)
    return out


@right(U)
def a_list_from_a_call(u):
    xs = _filled(u, 3)
    xs.append(u[4])
    ys = list(xs)
    ys[0] = 7.0
    zs = xs.copy()
    zs.append(1.0)
    return sum(xs) * xs[0] + ys[0] * sum(zs) + len(zs)


@right(U)
def a_list_of_bools(u):
    seen = [x > 0.5 for x in u]
    some = [False] * 3
    some[1] = seen[1]
    seen[0] = True
    count = 0
    for i in range(len(seen)):
        if seen[i] or (i < 3 and some[i]):
            count += 1
    return count


@right(U, 30)
def convergence(u, n):
    errors = []
    x = 1.0
    for _ in range(n):
        y = 0.5 * (x + u[1] / x)
        errors.append(abs(y - x))
        if errors[-1] < 1e-13:
            break
        x = y
    return x + errors[0] + errors[1] * 0.1


# records


@right(Point(0.3, 0.4), 3)
def a_named_tuple_is_given(p, n):
    q = p
    for _ in range(n):
        q = Point(q.x * 0.9 - q.y * 0.1, q.y + p.x * 0.2, weight=q.weight)
    x, y, _ = q
    return q.norm() + q.norm(3) + x * y + q[2] * p.x


@right(0.3, 0.4)
def a_named_tuple_is_made(x, y):
    p = Point(x, y=y * x)
    q = p._replace(x=p.y + 1.0)
    return q, (p, q.norm())


@right(Spring(1.5, 0.2, 3.0), 0.7, 3)
def a_dataclass_is_given(spring, x, n):
    v = 0.0
    for _ in range(n):
        v += 0.1 * spring.force(x, v)
        x += 0.1 * v
    return x * x + v * spring.rate


@right(0.7)
def a_dataclass_is_made(x):
    s = Spring(x, mass=2.0)
    s = replace(s, damping=x * 0.5)
    return s, s.rate


@right(Particles(np.array([0.1, 0.2]), np.array([1.0, -0.5])), 4)
def arrays_in_a_record(p, n):
    place, speed = p.place.copy(), p.speed
    for i in range(n):
        place[i % 2] += 0.1 * speed[0]
        speed = speed * 0.9
    p = Particles(place, speed, time=p.time + n)
    return (p.place * p.speed).sum() + p.time


@right(Particles(np.array([0.1, 0.2]), np.array([1.0, -0.5])))
def a_record_is_returned(p):
    return Particles(p.place + 1.0, p.speed * p.place, 2.0)


@right({"rate": 0.3, "power": 2.0}, 0.5)
def a_dict_is_given(settings, x):
    return x ** settings["power"] * settings["rate"] + len(settings)


@right(0.4, 3)
def a_dict_is_changed(x, n):
    state = {"x": x, "v": 0.0}
    for _ in range(n):
        state["v"] -= 0.1 * state["x"]
        state["x"] += 0.1 * state["v"]
    state["n"] = n
    return state


@right(0.4)
def a_dict_is_copied(x):
    a = {"x": x, "y": 1.0}
    b = a
    b = b.copy()
    b["x"] = 5.0
    return a["x"] * b["x"] + a["y"]


# more dimensions


@right(T, 2)
def items_of_three_dimensions(t, n):
    s = 0.0
    for _ in range(n):
        for i in range(t.shape[0]):
            for j in range(t.shape[1]):
                for k in range(t.shape[2]):
                    s += t[i, j, k] ** 2 * t[-1, j - 1, k]
    return s


@right(T)
def three_dimensions_are_written(t):
    a = np.zeros_like(t) + np.ones((2, 3, 4)) * 0.5
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(1, a.shape[2]):
                a[i, j, k] = a[i, j, k - 1] * t[i, j, k]
    a[0, 1] = a[1, 2] * 2.0
    a[1] += t[0]
    a[:, 0, 1:3] = 0.25
    a[0, :, -1] *= t[1, :, 0]
    return (a * t).sum() + a[1, 1].sum() + a[:, 1].max()


@right(T)
def four_dimensions(t):
    a = np.zeros((2, 2, 3, 4))
    a[0] = t
    a[1] = a[0] * t
    a[1, 0, :, 2] = a[0, 1, 2, 1:]
    total = 0.0
    for block in a:
        total += block[1, 2, 3] * block.sum()
    return total + a[-1, :, 1].sum() + a.ndim + a.size


@right(U, 4)
def counted(u, n):
    t = np.arange(0.0, 1.0, 0.3)
    total = 0.0
    for i in np.arange(n):
        total += u[i] * t[i % 4]
    return total + np.arange(5.0).sum() + np.array([1, 2])[1]


# what is printed, and raised


@right(U, 2)
def what_is_printed(u, n):
    print("begins", n)
    for i in range(n):
        print(f"step {i}: {u[i]:.3f}, {u[i] > 0.5}", u[i] * 0.5, sep=" | ", end="!\n")
    print()
    return u[0] * u[1]


@right(U)
def what_is_not_raised(u):
    if u[0] > 5.0:
        raise ValueError("too large")
    if u.shape[0] < 2:
        raise RuntimeError
    return u[0] ** 2


# refused


@refused([1.0])
def a_list_of_the_caller(xs):
    xs.append(2.0)
    return sum(xs)


@refused({"x": 1.0})
def a_dict_of_the_caller(d):
    d["x"] = 2.0
    return d["x"]


@refused(Particles(np.zeros(2), np.ones(2)))
def a_field_is_assigned(p):
    p.time = 5.0
    return p.time


@refused(U)
def a_loop_over_a_list_that_grows(u):
    xs = [u[0]]
    for x in xs:
        if len(xs) < 3:
            xs.append(x * 0.5)
    return sum(xs)


@refused(U)
def lengths_of_arrays_differ(u):
    xs = [u[:2]]
    xs.append(u[:3])
    return len(xs)


@refused(U)
def an_empty_list_is_popped(u):
    xs = [u[0]]
    xs.pop()
    x = xs.pop()
    return x


@refused(U)
def beyond_a_list(u):
    xs = [u[0], u[1]]
    xs.pop()
    return xs[1]


@refused(U)
def another_method_of_a_list(u):
    xs = [u[0]]
    xs.insert(0, 1.0)
    return xs[0]


@refused(U)
def a_message_with_numbers(u):
    if u[0] < 5.0:
        raise ValueError(f"too small: {u[0]}")
    return u[0]


@refused(U)
def an_array_is_printed(u):
    print(u)
    return u[0]


@refused(U)
def an_exception_that_is_caught(u):
    try:
        x = u[0] / 0.0
    except ZeroDivisionError:
        x = 0.0
    return x
