"""Hints on gradients of JAX programs as a whole."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback
from jax.sharding import AxisType, PartitionSpec

import retape
import retape.jax
from tests.hints.rows import rows

X = jnp.linspace(0.1, 0.9, 3)
PLAN = retape.fixed_space(snapshots=3)


def chain(x: Any) -> Any:
    """A loss of three numbers."""
    return jnp.sum(jnp.sin(x) * jnp.exp(x))


def looped(x: Any) -> Any:
    """A loss behind a loop of known length."""
    return jnp.sum(lax.fori_loop(0, 9, lambda i, v: jnp.sin(v) + 0.1 * v, x) ** 2)


def searched(x: Any) -> Any:
    """A loss behind a loop of unknown length."""
    return jnp.sum(lax.while_loop(lambda v: v[0] < 2.0, lambda v: 1.3 * v, x) ** 2)


def scanned(x: Any, **options: Any) -> Any:
    """The same by Retape's scan."""
    step = lambda v, _: (jnp.sin(v) + 0.1 * v, None)  # noqa: E731
    return jnp.sum(retape.jax.scan(step, x, None, 9, **options)[0] ** 2)


def on_one_device(f: Callable[..., Any]) -> Any:
    """A function that is mapped over a mesh of one device."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("d")
    return jax.jit(
        jax.shard_map(lambda x: f(x)[None], mesh=mesh, in_specs=spec, out_specs=spec)
    )


def climbing(x: Any, y: Any) -> Any:
    """Doubled until it is above nine, and 0 * y."""
    del y
    return lax.while_loop(lambda c: c < 9.0, lambda c: c * 2.0, x)


@jax.custom_jvp
def by_tangents(x: Any, y: Any) -> Any:
    return climbing(x, y)


@by_tangents.defjvp
def _(primals: Any, tangents: Any) -> Any:
    x, dx = primals[0], tangents[0]
    both = lambda c: (c[0] * 2.0, c[1] * 2.0)  # noqa: E731
    z, dz = lax.while_loop(lambda c: c[0] < 9.0, both, (x, dx))
    return z, dz + tangents[1]


def on_the_host(x: Any) -> Any:
    return np.sin(x)


@jax.custom_vjp
def printing(x: Any) -> Any:
    return jnp.sin(x)


def _printed(x: Any, cotangent: Any) -> Any:
    jax.debug.print("backwards")
    return (cotangent * jnp.cos(x),)


printing.defvjp(lambda x: (jnp.sin(x), x), _printed)


ROWS = [
    *rows(
        "jax.grad(looped)(X)",
        r"""
retape.jax.grad(lambda n: 2.0 * n)(3)
says: pass `allow_int=True`
retape.jax.grad(lambda n: 2.0 * n, allow_int=True)(3).dtype == jax.dtypes.float0
gives: True

retape.jax.grad(lambda x: (looped(x), x))(X)
says: pass `has_aux=True`
retape.jax.grad(lambda x: (looped(x), x), has_aux=True)(X)
gives: (jax.grad(looped)(X), X)

retape.jax.grad(lambda z: jnp.sin(z * 1j).sum())(X)
says: pass `holomorphic=True`
retape.jax.grad(lambda z: jnp.sin(z * 1j).sum(), holomorphic=True)(X + 0j)
gives: 1j * jnp.cos(X * 1j)

jax.jit(lambda x: retape.jax.measure(looped, x).value)(X)
says: use `retape.jax.value_and_grad`
jax.jit(retape.jax.value_and_grad(looped))(X)
gives: jax.value_and_grad(looped)(X)

f = on_one_device(searched)
retape.jax.grad(lambda x: f(x)[0], plan=retape.within('1 MB'))(X)
says: pass `retape.fixed_space`
f = on_one_device(searched)
plan = retape.fixed_space(snapshots=8)
retape.jax.grad(lambda x: f(x)[0], plan=plan)(X)
gives: jax.jacfwd(searched)(X)

retape.jax.grad(by_tangents, argnums=(0, 1))(1.0, 1.0)
says: Give it a `jax.custom_vjp`
f = jax.custom_vjp(climbing)
back = lambda x, c: (c * climbing(x, x) / x, c)
f.defvjp(lambda x, y: (f(x, y), x), back)
retape.jax.grad(f, argnums=(0, 1))(1.0, 1.0)
gives: (16.0, 1.0)

f = lambda x: io_callback(on_the_host, x, x)
retape.jax.grad(lambda x: (x * f(lax.stop_gradient(x))).sum())(X)
says: Use `jax.pure_callback`
f = lambda x: jax.pure_callback(on_the_host, x, x)
retape.jax.grad(lambda x: (x * f(lax.stop_gradient(x))).sum())(X)
gives: jnp.sin(X)

shape = jax.export.symbolic_shape('n')
x = jax.ShapeDtypeStruct(shape, jnp.float32)
f = jax.jit(retape.jax.grad(looped, plan=retape.within('1 MB')))
jax.export.export(f)(x)
says: pass a plan or policy that is no number of bytes, such as
    `retape.fixed_space(snapshots=8)`
shape = jax.export.symbolic_shape('n')
x = jax.ShapeDtypeStruct(shape, jnp.float32)
plan = retape.fixed_space(snapshots=8)
f = jax.jit(retape.jax.grad(looped, plan=plan))
jax.export.export(f)(x).call(X)

w = jax.ShapeDtypeStruct(jax.export.symbolic_shape('n'), jnp.float32)
f = lambda w: retape.jax.scan(lambda c, w: (jnp.sin(c * w), None), 1.0, w)[0]
jax.export.export(jax.jit(jax.grad(f)))(w)
says: write it as `retape.jax.fori_loop`
w = jax.ShapeDtypeStruct(jax.export.symbolic_shape('n'), jnp.float32)
g = lambda i, c, w: jnp.sin(c * w[i])
f = lambda w: retape.jax.fori_loop(0, w.shape[0], lambda i, c: g(i, c, w), 1.0)
jax.export.export(jax.jit(jax.grad(f)))(w).call(X)
gives: jax.grad(lambda w: lax.scan(lambda c, w: (jnp.sin(c * w), None), 1.0, w)[0])(X)

retape.jax.grad(looped, plan=retape.within(10))(X)
says: Pass `retape.within({})`
retape.jax.grad(looped, plan=THE_CODE)(X)

retape.jax.grad(looped, plan=retape.fixed_space)(X)
PlanError says: Write `plan=retape.fixed_space(snapshots=8)`
retape.jax.grad(looped, plan=retape.fixed_space(snapshots=8))(X)

retape.jax.grad(looped, plan='1 MB')(X)
PlanError says: write `plan=retape.within('1 MB')`
retape.jax.grad(looped, plan=retape.within('1 MB'))(X)

retape.jax.grad(looped, plan=20000)(X)
says: write `plan=retape.within(20000)`
retape.jax.grad(looped, plan=retape.within(20000))(X)

retape.jax.grad(looped, plan=20)(X)
PlanError says: for snapshots `plan=retape.fixed_space(snapshots=20)`
retape.jax.grad(looped, plan=retape.fixed_space(snapshots=20))(X)

retape.jax.grad(looped, PLAN)(X)
says: Write `plan=...`
retape.jax.grad(looped, plan=PLAN)(X)

retape.jax.grad(looped, plan='half')(X)
says: Pass one that `retape.fixed_space`
retape.jax.grad(looped, plan=retape.fixed_space(snapshots=3))(X)
""",
    ),
    *rows(
        "jnp.cos(X)",
        r"""
retape.jax.grad(jnp.sin)(X)
GradientTypeError says: use `retape.jax.vjp`
value, pull = retape.jax.vjp(jnp.sin, X)
pull(jnp.ones(3))[0]

f = lambda x: jax.pure_callback(on_the_host, x, x)
retape.jax.grad(lambda x: f(x).sum())(X)
says: Give it a derivative with `jax.custom_vjp`
f = jax.custom_vjp(lambda x: jax.pure_callback(on_the_host, x, x))
f.defvjp(lambda x: (f(x), x), lambda x, c: (c * jnp.cos(x),))
retape.jax.grad(lambda x: f(x).sum())(X)

retape.jax.grad(lambda x: printing(x).sum())(X)
says: use `jax.grad`
(jax.grad)(lambda x: printing(x).sum())(X)
""",
    ),
]
