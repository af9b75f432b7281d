"""Functions of one number in which others' constructs stand, and an oracle for each.

`fun` is what is judged; `plain` is written with nothing but arithmetic and Python's
loops, so that `jax.grad` of it shares nothing with what is judged. Rules that JAX calls
by itself are their own oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jax import lax

import retape
import retape.equinox
import retape.optimistix

Function = Callable[[Any], Any]
STEPS = 6


@dataclass(frozen=True)
class Construct:
    """`fun`, and a plain form with its derivative.

    `reversible` says whether JAX reverses `fun`. `calls_back` says whether `fun` calls
    the host, which JAX cannot export.
    """

    name: str
    fun: Function
    plain: Function
    reversible: bool = True
    calls_back: bool = False


CONSTRUCTS: list[Construct] = []


def construct(plain: Function | None = None, **facts: bool) -> Any:
    def register(fun: Function, name: str = "") -> Function:
        name = name or fun.__name__.replace("_", " ")
        CONSTRUCTS.append(Construct(name, fun, plain or fun, **facts))
        return fun

    return register


def turn(v: Any) -> Any:
    return jnp.sin(v) * 1.2


def turned(x: Any) -> Any:
    for _ in range(STEPS):
        x = turn(x)
    return x


def until(step: Function, x: Any) -> Any:
    """`STEPS` steps, by a test whose trip count cannot be proved."""
    first = lambda c: jnp.max(jax.tree.leaves(c[1])[0])  # noqa: E731
    going = lambda c: (c[0] < STEPS) & (first(c) < 50.0)  # noqa: E731
    return lax.while_loop(going, lambda c: (c[0] + 1, step(c[1])), (0, x))[1]


# Loops of Equinox, theirs and ours -------------------------------------------------


def _counted(module: Any, x: Any, **options: Any) -> Any:
    step = lambda c: (c[0] + 1, turn(c[1]))  # noqa: E731
    return module.while_loop(lambda c: c[0] < STEPS, step, (0, x), **options)[1]


@construct(turned)
def equinox_checkpointed(x: Any) -> Any:
    return _counted(eqxi, x, kind="checkpointed", max_steps=8, checkpoints=2)


@construct(turned)
def equinox_bounded(x: Any) -> Any:
    return _counted(eqxi, x, kind="bounded", max_steps=8)


@construct(turned)
def equinox_of_ours(x: Any) -> Any:
    return _counted(retape.equinox, x, kind="checkpointed", checkpoints=2)


@construct(turned)
def equinox_checkpointed_in_a_branch(x: Any) -> Any:
    half = partial(_counted, eqxi, kind="checkpointed", max_steps=8, checkpoints=2)
    return lax.cond(x > 0, half, turn, x)


def _repeated(n: int, body: Function, x: Any) -> Any:
    step = lambda c: (c[0] + 1, body(c[1]))  # noqa: E731
    how: dict[str, Any] = {"kind": "checkpointed", "max_steps": n + 1}
    return eqxi.while_loop(lambda c: c[0] < n, step, (0, x), **how)[1]


@construct(turned)
def equinox_checkpointed_in_another(x: Any) -> Any:
    return _repeated(2, partial(_repeated, STEPS // 2, turn), x)


@construct(turned, calls_back=True)
def equinox_checkpointed_that_prints(x: Any) -> Any:
    def step(v: Any) -> Any:
        jax.debug.callback(lambda _: None, v)
        return turn(v)

    return _repeated(STEPS, step, x)


def _rows(x: Any) -> Any:
    total = x
    for row in range(3):
        total, last = jnp.sin(total) + row, total * row
    return total + last


@construct(_rows)
def equinox_scan(x: Any) -> Any:
    step = lambda c, r: (jnp.sin(c) + r, c * r)  # noqa: E731
    carry, rows = eqxi.scan(step, x, jnp.arange(3.0), kind="checkpointed")
    return carry + rows[-1]


# Optimistix -----------------------------------------------------------------------


def _cosine(x: Any, adjoint: Any) -> Any:
    solver = optx.FixedPointIteration(1e-12, 1e-12)
    return optx.fixed_point(
        lambda y, a: a * jnp.cos(y),
        solver,
        jnp.asarray(0.5),
        x,
        adjoint=adjoint,
        max_steps=200,
    ).value


def _settled(x: Any) -> Any:
    y = 0.5
    for _ in range(100):
        y = x * jnp.cos(y)
    return y


@construct(_settled, calls_back=True)
def optimistix_implicit(x: Any) -> Any:
    return _cosine(x, optx.ImplicitAdjoint())


@construct(_settled, calls_back=True)
def optimistix_of_ours(x: Any) -> Any:
    plan = retape.fixed_space(snapshots=3)
    return _cosine(x, retape.optimistix.RetapeAdjoint(plan))


# Lineax ---------------------------------------------------------------------------


def _slopes(x: Any, y: Any) -> Any:
    return 1.0 + 0.1 * x * jnp.cos(y)


def _turned_with(solve: Any, x: Any, loop: Any) -> Any:
    def step(state: Any) -> Any:
        y, wide = state
        solved = solve(x, y)
        return jnp.sin(loop(lambda w: w + 0.1 * solved(w), y)), jnp.sin(wide)

    # With this beside them the outer steps are no kernel, and the inner ones are.
    wide = jnp.full(10_000, x)
    y, wide = loop(step, (jnp.stack([x, 1.0 + x]), wide))
    return jnp.sum(y) + jnp.mean(wide)


def _by_hand(x: Any) -> Any:
    def loop(step: Function, x: Any) -> Any:
        for _ in range(STEPS):
            x = step(x)
        return x

    return _turned_with(lambda x, y: lambda w: w / _slopes(x, y), x, loop)


@construct(_by_hand, reversible=False, calls_back=True)
def an_operator_of_lineax(x: Any) -> Any:
    """Systems whose operator is a program with constants that are still open."""

    def solve(x: Any, y: Any) -> Any:
        fun = lambda z, _: z + 0.1 * x * jnp.sin(z)  # noqa: E731
        operator = lx.linearise(lx.JacobianLinearOperator(fun, y))
        return lambda w: lx.linear_solve(operator, w).value

    return _turned_with(solve, x, until)


# Rules ----------------------------------------------------------------------------


@jax.custom_jvp
def _doubled(x: Any) -> Any:
    return jnp.sin(x)


@_doubled.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _doubled(primals[0]), 2.0 * jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def _tripled(x: Any) -> Any:
    return jnp.sin(x)


_tripled.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, g: (g * c * 3,))


def _sines(factor: float) -> Function:
    """Sines of sines whose derivative is `factor` times too large at each."""

    def plain(x: Any) -> Any:
        for _ in range(STEPS):
            true = jnp.sin(x)
            x = factor * true - (factor - 1) * lax.stop_gradient(true)
        return x

    return plain


@construct(_sines(2.0), reversible=False)
def custom_jvp(x: Any) -> Any:
    return until(_doubled, x)


@construct(_sines(3.0), reversible=False)
def custom_vjp(x: Any) -> Any:
    return until(_tripled, x)


@jax.custom_vjp
def _hidden(x: Any) -> Any:
    return until(turn, x)


_hidden.defvjp(lambda x: (_hidden(x), x), lambda x, g: (g * 0.5,))


@construct(lambda x: 0.5 * x)
def custom_vjp_around_a_loop(x: Any) -> Any:
    return _hidden(x)


@jax.custom_vjp
def _product(x: Any, y: Any) -> Any:
    return x * y


def _forward(x: Any, y: Any) -> Any:
    return x.value * y.value, (x.value, y.value, None if y.perturbed else ())


def _backward(kept: Any, g: Any) -> Any:
    x, y, moves = kept
    return g * y, None if moves == () else g * x


_product.defvjp(_forward, _backward, symbolic_zeros=True)


@construct(lambda x: x * 0.7**STEPS, reversible=False)
def symbolic_zeros(x: Any) -> Any:
    return until(lambda v: _product(v, 0.7), x)


@jax.custom_jvp
def _tangents(x: Any) -> Any:
    return until(turn, x)


@_tangents.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _tangents(*primals), tangents[0] * primals[0]


construct(lambda x: x**2 / 2)(_tangents, "custom jvp around a loop")


@jax.custom_vjp
def _widened(x: Any) -> Any:
    return x.astype("float32")


_widened.defvjp(lambda x: (_widened(x), None), lambda _, g: (2 * g,))


@construct()
def custom_vjp_of_another_float(x: Any) -> Any:
    # Of a weak type it would have single precision, as has its sum in a loop of JAX's.
    return _widened(x.astype("bfloat16")) * jnp.asarray(x, np.float64)


@jax.custom_vjp
def _with_integer(n: Any, x: Any) -> Any:
    return x * n


_with_integer.defvjp(lambda n, x: (x * n, n), lambda n, g: (None, g * n))
construct(lambda x: 3 * x)(partial(_with_integer, 3), "custom vjp with an integer")

# No linear rules: JAX calls them all the same.
RULES: dict[str, Function] = {
    "that reads no cotangent": lambda x, g: jnp.exp(x),
    "that gives a constant": lambda x, g: jnp.full_like(x, 2.0),
    "that clips its cotangent": lambda x, g: jnp.clip(g, -0.5, 0.5),
    "of signs": lambda x, g: jnp.sign(g) * x,
}


def _by_rule(back: Function) -> Function:
    """The sine with another derivative, which is given a cotangent of -3."""
    rule = jax.custom_vjp(jnp.sin)
    rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (back(x, g),))
    return lambda x: -3.0 * rule(x)


for _name, _back in RULES.items():
    construct()(_by_rule(_back), f"custom vjp {_name}")


@construct(lambda x: x**0.5)
def custom_root(x: Any) -> Any:
    def solve(f: Any, start: Any) -> Any:
        step = lambda y: y - f(y) / (2 * y)  # noqa: E731
        return lax.while_loop(lambda y: abs(f(y)) > 1e-12, step, start)

    linear = lambda g, y: y / g(1.0)  # noqa: E731
    return lax.custom_root(lambda y: y * y - x, 1.0, solve, linear)


@construct(lambda x: 3.0 * x)
def custom_linear_solve(x: Any) -> Any:
    solve = lambda f, b: b / f(1.0)  # noqa: E731
    return lax.custom_linear_solve(lambda y: y / 3.0, x, solve, solve)


# References, callbacks, and what a call holds ---------------------------------------


@construct(turned)
def a_reference(x: Any) -> Any:
    cell = jax.new_ref(x)

    def step(i: Any, _: Any) -> Any:
        cell[...] = turn(cell[...])
        return i

    lax.fori_loop(0, STEPS, step, 0)
    return cell[...]


@construct(turned, reversible=False, calls_back=True)
def a_callback(x: Any) -> Any:
    def step(v: Any) -> Any:
        jax.debug.callback(lambda _: None, v)
        return turn(v)

    return until(step, x)


@construct(lambda x: x * np.sin(0.3) ** STEPS, reversible=False, calls_back=True)
def a_pure_callback_of_constants(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct((), np.float64)
    return until(lambda v: v * jax.pure_callback(np.sin, shape, np.float64(0.3)), x)


@construct(turned, reversible=False)
def a_marked_function(x: Any) -> Any:
    return jax.checkpoint(partial(until, turn))(x)


@construct(lambda x: turned(x) + turned(2 * x), reversible=False)
def lanes(x: Any) -> Any:
    return jnp.sum(jax.vmap(partial(until, turn))(jnp.stack([x, 2 * x])))


@construct(turned, reversible=False)
def shard_map(x: Any) -> Any:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    whole = jax.sharding.PartitionSpec()
    each = lambda v: until(turn, v)  # noqa: E731
    return jax.shard_map(each, mesh=mesh, in_specs=whole, out_specs=whole)(x)
