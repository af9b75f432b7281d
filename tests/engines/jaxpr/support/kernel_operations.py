"""Compiles every operation that a kernel may hold, and prints those that it forgot.

A process of its own: XLA stops the one that it is in at some of what it cannot emit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core

import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.seams import TABLE, Kernel


def elementwise(x: Any, i: Any, p: Any) -> Iterator[Any]:
    """On floats, integers and truths; any length from 4 on."""
    y = x * 0.5 + 0.1
    yield from (lax.abs(x), x + y, lax.atan2(x, y), lax.cbrt(x), lax.ceil(x), x / y)
    yield from (lax.clamp(x * 0 + 0.2, x, x * 0 + 0.6), lax.cos(x), lax.eq(x, y))
    yield from (lax.exp(x), lax.exp2(x), lax.expm1(x), lax.floor(x), x >= y, x > y)
    yield from (lax.integer_pow(x, 3), lax.is_finite(x), x <= y, lax.log(y))
    yield from (lax.log1p(y), lax.logistic(x), x < y, lax.max(x, y), lax.min(x, y))
    yield from (x * y, x != y, -x, lax.nextafter(x, y), lax.pow(y, x), lax.rem(x, y))
    yield from (lax.round(x), lax.rsqrt(y), lax.sign(x), lax.sin(x), lax.sqrt(y))
    yield from (lax.square(x), lax.stop_gradient(x), x - y, lax.tan(x), lax.tanh(x))
    yield from (lax.asin(y * 0.1), lax.acos(y * 0.1), lax.atan(x), lax.sinh(x))
    yield from (lax.cosh(x), lax.asinh(x), lax.acosh(y + 1.0), lax.atanh(y * 0.1))
    yield from (lax.erf(x), instead().bind(x, y), jnp.copy(x), lax.select(p, x, y))
    yield from (i & 3, i | 3, i ^ 3, ~i, ~p, p & (x > y), i << 1, i // 3, i % 3)
    yield from (lax.shift_right_arithmetic(i, i * 0 + 1), i.astype(x.dtype))
    yield from (lax.shift_right_logical(i, i * 0 + 1), i * 2 - i, i.astype(np.uint8))
    yield lax.bitcast_convert_type(x, np.int64 if x.dtype.itemsize == 8 else np.int32)
    yield from (x.astype(np.float32), x.astype(np.int32), jax.nn.silu(x), x[::-1])


def shapes(x: Any, i: Any, p: Any) -> Iterator[Any]:
    """Moving and summing, on six numbers."""
    y = x * 0.5 + 0.1
    yield from (lax.broadcast_in_dim(x, (3, 6), (1,)), lax.concatenate([x, y], 0))
    yield from (lax.expand_dims(x, (0,)), lax.iota(x.dtype, 5), jnp.stack([x, y]))
    yield from (lax.pad(x, x[0], [(1, 2, 0)]), x.reshape(2, -1), lax.rev(x, (0,)))
    yield from (x[1:4], x[:1][0], x.reshape(2, -1).T, *lax.split(x, (2, 4)))
    yield from (jnp.all(p), jnp.any(p), jnp.max(x), jnp.min(x), jnp.prod(x), jnp.sum(x))
    yield from jax.vjp(lambda a, b: jnp.stack([a, b], 1), x, y)[1](jnp.stack([y, x], 1))
    yield from (lax.cumsum(x), x[jnp.abs(i)], x[i[0]], x.at[i[0]].set(3.0))
    yield from (x.at[i[0]].add(3.0), x.at[1].multiply(3.0))
    yield lax.dynamic_slice(x, (i[1],), (3,))
    yield lax.dynamic_update_slice(x, y[:2], (i[1],))
    yield from lax.optimization_barrier((x, y))


def instead() -> core.Primitive:
    """Our own operation on elements, from a program that has it."""
    names = retape.jax.policies.names(save=["kept"])
    kept = lambda v: jnp.cos(checkpoint_name(jnp.sin(v), "kept"))  # noqa: E731
    stack = [jax.make_jaxpr(retape.jax.checkpoint(kept, policy=names))(0.5).jaxpr]
    for jaxpr in stack:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "retape_with_primal":
                return eqn.primitive
            inner = core.jaxprs_in_params(eqn.params)
            stack += [getattr(j, "jaxpr", j) for j in inner]
    raise AssertionError("no saved value is read instead of a computed one")


def bodies(x: Any, i: Any, p: Any) -> Iterator[Any]:
    """Operations that hold programs."""
    # XLA finds that `i` does not matter, and that `x` is handed through.
    turn = lambda c: (c[0] * 0.5, c[1] + (i - i), c[2])  # noqa: E731
    yield from lax.while_loop(lambda c: c[0] > 1.0, turn, (x[0] + 7, i, x))
    yield lax.scan(lambda c, v: (c * 0.9 + v, c), x[0], x)[1]
    yield lax.cond(p[0], lambda v: v * 2, lambda v: v - 1, x)
    yield lax.while_loop(lambda v: v[0] < 30, lambda v: v * 1.5 + 1, x)
    yield jax.checkpoint(jnp.sin)(x)
    both = lambda v: lax.cond(p[0], lambda v: jnp.sin(v) * v, jnp.abs, v)  # noqa: E731
    yield jax.vjp(both, x)[1](x)[0]


def largest(x: Any, i: Any, _p: Any) -> Iterator[Any]:
    """What is larger yet XLA would hand to other emitters."""
    for z in (x, x.reshape(64, -1), x.reshape(8, 8, -1)):
        for axis in (None, 0, z.ndim - 1):
            yield from (jnp.sum(z * z, axis), jnp.max(z, axis), jnp.prod(z, axis))
    yield from (jnp.sum(x[:k]) for k in (31, 32, 33, 34, 35, 36, 127, 1021))
    yield jnp.full((3, 2 * x.size), x[0])
    yield from (jnp.sum(i), jnp.min(i), jnp.any(x > 0.3), jnp.all(x > 0.3))
    yield from (x - jnp.mean(x), x / jnp.sqrt(jnp.sum(x * x)), x[i % 7], lax.cumsum(x))


def sums(x: Any, _i: Any, _p: Any) -> Iterator[Any]:
    """Sums in parts may be longer."""
    for z in (x, x.reshape(64, -1), x.reshape(-1, 2), x.reshape(8, 8, -1)):
        yield jnp.sum(z * z, z.shape.index(max(z.shape)))
        yield jnp.sqrt(jnp.sum(z * z)) * z


def check(each: Callable[..., Iterator[Any]], *args: Any) -> set[str]:
    """Compare one kernel with its operations one by one; give their names."""
    many = lambda *given: [jnp.asarray(v) for v in each(*given)]  # noqa: E731
    # The last input is one that nothing uses.
    inner = lambda *given: many(*given[:-1])  # noqa: E731
    given = (*args, np.arange(3.0))
    program = seams.kernel(inner, *given)
    one = jax.jit(core.jaxpr_as_fun(program))
    assert "xla_cpu_small_call" in one.lower(*given).as_text(), program
    expected = many(*map(jnp.asarray, args))
    for a, b in zip(one(*given), expected, strict=True):
        tight = 2e-5 if b.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(a, b, rtol=tight, atol=tight)
    return set(seams.operations(program))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    seen: set[str] = set()
    for kind in (np.float32, np.float64):
        for n, each in ((6, elementwise), (6, shapes), (6, bodies)):
            x, i = np.linspace(0.1, 1.2, n).astype(kind), np.arange(n) - 2
            seen |= check(each, x, i, i % 2 == 0)
        large, summed = seams.LARGEST, seams.SUMMED
        for n, each in ((large, elementwise), (large, sums), (summed, largest)):
            x, i = np.linspace(0.9, 1.1, n).astype(kind), np.arange(n)
            check(each, x, i, i % 2 == 0)
    tried = (Kernel.ELEMENT, Kernel.SHAPE, Kernel.SUM, Kernel.ROW)
    listed = {name for name, row in TABLE.items() if row.kernel in tried}
    print(*sorted(listed - seen))


if __name__ == "__main__":
    main()
