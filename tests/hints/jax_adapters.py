"""Hints of `retape.diffrax` and `retape.nnx`."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import functools
import os
import warnings
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from flax import nnx

with warnings.catch_warnings():
    # What these packages say of JAX's new names when they are loaded.
    warnings.simplefilter("ignore")
    import diffrax

import retape
import retape.diffrax
import retape.jax
import retape.nnx
from tests.hints.rows import rows

PLAN = retape.fixed_space(snapshots=3)
POINT = jnp.asarray([0.7, 0.3])


def solve(p: Any, adjoint: Any, noise: Any = None) -> Any:
    """The end of a small equation, as one number."""
    terms: Any = diffrax.ODETerm(lambda t, y, p: -p[0] * y)
    if noise is not None:
        path = noise(shape=(), key=jax.random.key(0))
        control = diffrax.ControlTerm(lambda t, y, p: p[1], path)
        terms = diffrax.MultiTerm(terms, control)
    found = diffrax.diffeqsolve(
        terms, diffrax.Euler(), 0.0, 1.0, 0.25, p[1], args=p, adjoint=adjoint
    )
    assert found.ys is not None
    return found.ys[0]


def keeps_all(x: Any) -> Any:
    """A loop behind a rule that keeps every value that it passed through."""
    body = lambda v, _: (jnp.sin(v) + 0.1 * v, v)  # noqa: E731

    @jax.custom_vjp
    def loop(v: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda i, v: body(v, None)[0], v)

    def backward(kept: Any, cotangent: Any) -> Any:
        def pull(c: Any, v: Any) -> Any:
            return c * (jnp.cos(v) + 0.1), None

        return (jax.lax.scan(pull, cotangent, kept, reverse=True)[0],)

    loop.defvjp(lambda v: jax.lax.scan(body, v, length=20), backward)
    return jnp.sum(loop(x) ** 2)


tree = functools.partial(diffrax.VirtualBrownianTree, t0=0, t1=1, tol=1e-3)


@nnx.vmap(in_axes=0, out_axes=0)
def layers(key: Any) -> nnx.Linear:
    """Five layers, stacked."""
    return nnx.Linear(3, 3, rngs=nnx.Rngs(key))


ROWS = rows(
    "jax.jacfwd(lambda p: solve(p, diffrax.ForwardMode(), tree))(POINT)",
    r"""
adjoint = retape.diffrax.RetapeAdjoint(PLAN)
jax.grad(lambda p: solve(p, adjoint, diffrax.UnsafeBrownianPath))(POINT)
slow says: Use `diffrax.VirtualBrownianTree`
assert tree.func is diffrax.VirtualBrownianTree
adjoint = retape.diffrax.RetapeAdjoint(PLAN)
jax.grad(lambda p: solve(p, adjoint, tree))(POINT)
slow says: or `adjoint=diffrax.ForwardMode()`
path = diffrax.UnsafeBrownianPath
jax.jacfwd(lambda p: solve(p, adjoint=diffrax.ForwardMode(), noise=path))(POINT).shape
gives: (2,)

retape.jax.grad(keeps_all, plan=PLAN)(POINT)
slow says: pass `adjoint=retape.diffrax.RetapeAdjoint(plan=...)`
f = lambda p: solve(p, adjoint=retape.diffrax.RetapeAdjoint(plan=PLAN))
jax.grad(f)(POINT)
gives: jax.jacfwd(lambda p: solve(p, diffrax.ForwardMode()))(POINT)

retape.nnx.remat_scan(3)
says: Pass a function of a carry and a layer, as in `remat_scan(lambda x, layer:
    layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)`
from retape.nnx import remat_scan
scan = remat_scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0),
  out_axes=nnx.Carry)
keys = jax.random.split(jax.random.key(0), 5)
scan(jnp.ones(3), layers(keys))
gives: keys = jax.random.split(jax.random.key(0), 5)
stack, x = layers(keys), jnp.ones(3)
for k in range(5):
    x = x @ stack.kernel[k] + stack.bias[k]
x
""",
)
