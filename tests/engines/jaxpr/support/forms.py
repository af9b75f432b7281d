"""The matrix of program forms: every way in which a program can loop and branch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.engines.jaxpr.support.programs import Form

FORMS: list[Form] = []


def form(*args: Any, name: str = "", unrolls: bool = True) -> Any:
    """Register a program with the point at which it is tested."""

    def register(run: Any) -> Any:
        FORMS.append(Form(name or run.__name__, run, args, unrolls))
        return run

    return register


# while and fori_loop -----------------------------------------------------------


@form(0.7)
def halt_on_data(loops: Any, x: Any) -> Any:
    return loops.while_loop(lambda v: v < 5.0, lambda v: v * 1.5 + jnp.sin(x), x)


@form(0.7)
def zero_trips(loops: Any, x: Any) -> Any:
    return loops.while_loop(lambda v: v > 10.0, lambda v: v * 2, x * 3)


@form(0.7)
def while_in_while(loops: Any, x: Any) -> Any:
    def outer(c: Any) -> Any:
        inner = loops.while_loop(lambda v: v < 3.0, lambda v: v * 1.7 + 0.1 * x, c[0])
        return inner * 0.3, c[1] + 1

    return loops.while_loop(lambda c: c[1] < 4, outer, (x, 0))[0]


@form(0.7)
def two_inner_loops(loops: Any, x: Any) -> Any:
    def outer(i: Any, c: Any) -> Any:
        c = loops.while_loop(lambda v: v < 2.0, lambda v: v * 1.5 + x, c)
        return loops.fori_loop(0, i, lambda _, v: v * 0.6, c)

    return loops.fori_loop(0, 4, outer, x)


@form(0.7, 5)
def fori_dynamic(loops: Any, x: Any, n: Any) -> Any:
    return loops.fori_loop(0, n, lambda i, c: jnp.sin(c) + i * x, x)


@form(0.7, -2)
def fori_of_negative_length(loops: Any, x: Any, n: Any) -> Any:
    return loops.fori_loop(0, n, lambda i, c: jnp.sin(c) + i * x, x * x)


@form(0.7)
def carry_swaps(loops: Any, x: Any) -> Any:
    a, b, c = loops.fori_loop(
        0, 5, lambda i, c: (c[1], c[2] * x, c[0] * 1.1), (x, 2 * x, jnp.cos(x))
    )
    return a + 3 * b - 5 * c


@form(0.7)
def unused_carry(loops: Any, x: Any) -> Any:
    return loops.while_loop(
        lambda c: c[0] < 5.0, lambda c: (c[0] * 1.5, c[1] * 2, c[2]), (x, x, 7)
    )[0]


@form(0.7)
def overwritten_carry(loops: Any, x: Any) -> Any:
    """What the carry held before the loop does not matter."""
    return loops.fori_loop(0, 3, lambda i, c: x * x + i, jnp.sin(x))


@form(0.7)
def integers_and_booleans(loops: Any, x: Any) -> Any:
    def body(c: Any) -> Any:
        y, count, flip, small = c
        y = jnp.where(flip, y * x, y + small.astype(y.dtype) * x)
        return y, count + 1, ~flip, small + jnp.int8(1)

    start = (x, 0, jnp.asarray(True), jnp.int8(1))
    return loops.while_loop(lambda c: c[1] < 6, body, start)[0]


@form(0.7)
def loops_in_sequence(loops: Any, x: Any) -> Any:
    y = loops.while_loop(lambda v: v < 3.0, lambda v: v * 1.5 + x, x)
    z = loops.while_loop(lambda v: v > 1.0, lambda v: v * 0.6, y)
    return loops.fori_loop(0, 3, lambda i, v: v * y + z, x)


# scan ------------------------------------------------------------------------------


def _scan_all(loops: Any, x: Any, n: int, reverse: bool) -> Any:
    c, ys = loops.scan(
        lambda c, a: (jnp.sin(c * a) + x, c * a),
        x,
        jnp.arange(1.0, n + 1) * x,
        reverse=reverse,
    )
    return c + jnp.sum(ys**2 * jnp.arange(1.0, n + 1))


def _register_scans() -> None:
    for n in (0, 1, 2, 13):
        for reverse in (False, True):
            name = f"scan_of_{n}{'_reversed' if reverse else ''}"

            def run(loops: Any, x: Any, n: int = n, reverse: bool = reverse) -> Any:
                return _scan_all(loops, x, n, reverse)

            form(0.7, name=name)(run)


_register_scans()


@form([0.3, -0.4, 1.2])
def scan_xs_only(loops: Any, x: Any) -> Any:
    rows = loops.scan(lambda c, a: (c + 1, jnp.sin(a) * c), 0, x)[1]
    return jnp.sum(rows**2)


@form(0.7)
def nested_scans(loops: Any, x: Any) -> Any:
    """Inner ys are used by the outer body, and stacked by it."""

    def outer(c: Any, i: Any) -> Any:
        c, ys = loops.scan(
            lambda c, _: (jnp.sin(c) * 1.1, c * c), c, None, length=3, reverse=True
        )
        return c + jnp.sum(ys * jnp.arange(3.0)) * i, ys

    c, ys = loops.scan(outer, x, jnp.arange(5.0))
    return c + jnp.sum(ys[2] ** 2) + ys[4, 1]


@form([0.3, -0.4, 1.2])
def rows_of_rows(loops: Any, x: Any) -> Any:
    """An inner scan goes over a row of the outer one's stream."""
    grid = jnp.outer(x, x)

    def outer(c: Any, row: Any) -> Any:
        c, ys = loops.scan(lambda c, a: (jnp.sin(c + a), c * a), c, row)
        return c, ys * x

    c, ys = loops.scan(outer, jnp.sum(x), grid)
    return c + jnp.sum(ys * grid)


@form(0.7)
def ys_feed_a_later_loop(loops: Any, x: Any) -> Any:
    c, ys = loops.scan(lambda c, _: (jnp.sin(c) * 1.1, c * c), x, None, length=7)
    d, zs = loops.scan(lambda c, y: (jnp.cos(c * y), c + y), c, ys, reverse=True)
    return d + jnp.sum(zs * ys)


@form(0.7)
def ys_feed_a_while(loops: Any, x: Any) -> Any:
    _, ys = loops.scan(lambda c, _: (jnp.sin(c) * 1.1, c * c), x, None, length=7)
    return loops.while_loop(
        lambda c: c[1] < 7, lambda c: (c[0] * x + ys[c[1]], c[1] + 2), (x, 0)
    )[0]


@form(0.7)
def scan_of_a_tree(loops: Any, x: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        first, rest = row
        after = {"p": c["p"] * first + c["q"][0], "q": (c["q"][0] * rest["z"],)}
        return after, {"seen": c["p"]}

    xs = (jnp.arange(4.0) * x, {"z": jnp.ones(4) * x})
    c, ys = loops.scan(body, {"p": x, "q": (2 * x,)}, xs)
    return c["p"] + jnp.sum(ys["seen"])


@form(0.7)
def rows_written_by_hand(loops: Any, x: Any) -> Any:
    """Third-party code's own `ys`: allocate, then set one entry an iteration."""

    def body(c: Any) -> Any:
        i, v, rows = c
        return i + 1, jnp.sin(v) * 1.2, rows.at[i].set(v * x)

    i, v, rows = loops.while_loop(lambda c: c[0] < 5, body, (0, x, jnp.zeros(8)))
    return v + jnp.sum(rows**2) + i


@form(0.7)
def scan_in_while_with_rows(loops: Any, x: Any) -> Any:
    def body(c: Any) -> Any:
        v, ys = loops.scan(lambda v, a: (v * a, v + a), c[0], jnp.linspace(0.5, 1, 3))
        return v + 0.4 * jnp.max(ys), c[1] + 1

    return loops.while_loop(lambda c: c[1] < 3, body, (x, 0))[0]


# cond and switch -------------------------------------------------------------------


def _three_ways(loops: Any, x: Any, i: Any) -> Any:
    return loops.switch(
        i,
        [
            lambda x: loops.while_loop(lambda v: v < 5.0, lambda v: v * 1.5, x),
            lambda x: jnp.sin(x),
            lambda x: loops.fori_loop(0, 3, lambda i, v: v * x, x),
        ],
        x,
    )


for _i in (-3, 0, 1, 2, 9):
    form(0.7, _i, name=f"switch_{_i}")(_three_ways)


@form(0.7)
def cond_with_a_loop_in_a_loop(loops: Any, x: Any) -> Any:
    def climb(v: Any) -> Any:
        return loops.while_loop(lambda d: d < 2.0, lambda d: d * 1.5 + x, v) * 0.4

    def body(i: Any, v: Any) -> Any:
        return loops.cond(i % 2 == 0, climb, lambda v: v * x, v)

    return loops.fori_loop(0, 5, body, x)


@form(0.7)
def conds_in_a_cond(loops: Any, x: Any) -> Any:
    def climb(v: Any) -> Any:
        return loops.while_loop(lambda d: d < 2.0, lambda d: d * 1.5 + x, v)

    def choose(v: Any) -> Any:
        return loops.cond(v > 0.5, climb, jnp.cos, v)

    return loops.cond(x > 0.0, choose, jnp.sin, x) + choose(x * 0.1)


@form(0.7)
def arms_that_pass_values_through(loops: Any, x: Any) -> Any:
    def swap(a: Any, b: Any) -> Any:
        return b, a

    def climb(a: Any, b: Any) -> Any:
        return loops.while_loop(lambda d: d < 2.0, lambda d: d * 1.5 + b, a), b

    def body(i: Any, c: Any) -> Any:
        return loops.cond(i % 2 == 0, swap, climb, *c)

    a, b = loops.fori_loop(0, 4, body, (x, x * x))
    return a + 3 * b


# Calls -------------------------------------------------------------------------------


@form(0.7, unrolls=False)
def jit_with_a_loop_inside(loops: Any, x: Any) -> Any:
    inner = jax.jit(lambda v: loops.while_loop(lambda d: d < 3.0, lambda d: d + x, v))
    return loops.fori_loop(0, 3, lambda i, v: inner(v) * 0.5, x)


@form(0.7, unrolls=False)
def remat_with_a_loop_inside(loops: Any, x: Any) -> Any:
    @jax.checkpoint
    def climb(v: Any) -> Any:
        return loops.while_loop(lambda d: d < 5.0, lambda d: d * 1.5 + x, v)

    return climb(x) * climb(x * x)


@jax.custom_jvp
def _tripled(x: Any) -> Any:
    return jnp.sin(x)


@_tripled.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _tripled(primals[0]), tangents[0] * 3.0


@form(0.7)
def custom_jvp_inside(loops: Any, x: Any) -> Any:
    return loops.fori_loop(0, 4, lambda i, v: v + _tripled(v) * x, x)


@form(0.7)
def vmap_of_a_data_dependent_loop(loops: Any, x: Any) -> Any:
    def climb(v: Any) -> Any:
        return loops.while_loop(lambda d: d < 5.0, lambda d: d * 1.5 + x * d**2, v)

    if loops is not jax.lax:
        return sum(climb(v) for v in (x, 2 * x, 9 * x))
    return jnp.sum(jax.vmap(climb)(jnp.asarray([1.0, 2.0, 9.0]) * x))


# Values ------------------------------------------------------------------------------


@form([0.7, -0.2])
def closed_over_arrays(loops: Any, x: Any) -> Any:
    matrix = np.asarray([[0.1, 0.2], [0.3, 0.4]])
    return jnp.sum(
        loops.while_loop(
            lambda c: jnp.sum(c) < 5.0, lambda c: matrix @ c + 1 + x, jnp.zeros(2)
        )
    )


def _draw(loops: Any, x: Any, key: Any) -> Any:
    def body(c: Any) -> Any:
        key, total, i = c
        key, use = jax.random.split(key)
        return key, total * jax.random.uniform(use, dtype=total.dtype) + x, i + 1

    return loops.while_loop(lambda c: c[2] < 5, body, (key, x, 0))[1]


@form(0.7)
def typed_keys(loops: Any, x: Any) -> Any:
    return _draw(loops, x, jax.random.key(1))


@form(0.7)
def typed_keys_of_another_kind(loops: Any, x: Any) -> Any:
    return _draw(loops, x, jax.random.key(1, impl="rbg"))


@form(0.7)
def raw_keys(loops: Any, x: Any) -> Any:
    return _draw(loops, x, jax.random.PRNGKey(1))


@form(0.7)
def rows_of_typed_keys(loops: Any, x: Any) -> Any:
    keys = jax.random.split(jax.random.key(2), 4)
    return loops.scan(
        lambda c, k: (c * jax.random.uniform(k, dtype=c.dtype) + x, None), x, keys
    )[0]


@form(0.7, unrolls=False)
def a_loop_in_no_steps(loops: Any, x: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        c = loops.while_loop(lambda v: v < 3.0, lambda v: v * 1.7 + row, c)
        return c, c * x

    last, rows = loops.scan(body, jnp.sin(x), jnp.zeros(0) * x)
    return last * x + jnp.sum(rows)


@form(0.7)
def nothing_in_an_array(loops: Any, x: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] * 2 + jnp.sum(c[2]), c[1] + 1, c[2] * x

    empty = jnp.zeros((0, 2)) + x
    return loops.while_loop(lambda c: c[1] < 3, body, (x, 0, empty))[0]


@form(0.7)
def through_complex_numbers(loops: Any, x: Any) -> Any:
    z = loops.while_loop(
        lambda c: jnp.abs(c) < 5.0, lambda c: c * (1.5 + 0.3j) + x, x + 0j
    )
    return jnp.real(jnp.conj(z) * (1 + 2j))


@form(0.7)
def no_derivative_through(loops: Any, x: Any) -> Any:
    def body(c: Any) -> Any:
        held = jax.lax.stop_gradient(c[1]) + jnp.floor(c[1])
        return c[0] * 1.5 + held, c[1] * 2

    return loops.while_loop(lambda c: c[0] < 5.0, body, (x, x))[0]


@form([0.3, -0.4, 1.2])
def indexed_updates(loops: Any, x: Any) -> Any:
    def body(i: Any, c: Any) -> Any:
        return c.at[i % 3].add(c[(i + 1) % 3] * c[0])

    return jnp.sum(loops.fori_loop(0, 4, body, x))


@form([0.3, -0.4, 1.2])
def linear_algebra(loops: Any, x: Any) -> Any:
    def body(i: Any, c: Any) -> Any:
        return jnp.linalg.solve(jnp.eye(3) * 3 + jnp.outer(c, c), jnp.sort(c) + x)

    return jnp.sum(loops.fori_loop(0, 4, body, x))


@form(0.7)
def other_precision_inside(loops: Any, x: Any) -> Any:
    """A carry of one floating type in a program of another."""
    low = loops.fori_loop(0, 3, lambda i, c: c * c * 0.5, x.astype(jnp.float32))
    return low.astype(jnp.float64) * x


# Results -----------------------------------------------------------------------------


@form(0.7)
def identity(loops: Any, x: Any) -> Any:
    del loops
    return x


@form(0.7)
def ignores_its_argument(loops: Any, x: Any) -> Any:
    del x
    return loops.while_loop(lambda v: v < 5.0, lambda v: v * 1.5, jnp.asarray(1.0))


@form(0.7)
def a_python_number(loops: Any, x: Any) -> Any:
    del loops, x
    return 3.0


@form(0.7)
def loop_beside_the_result(loops: Any, x: Any) -> Any:
    """The loop's result is not used."""
    loops.while_loop(lambda v: v < 5.0, lambda v: v * 1.5, x)
    return x * x
