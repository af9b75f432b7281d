"""Hints on loops, layers, policies and the planner of JAX programs."""

# ruff: noqa: F401 - the statements of the rows use what is imported

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import retape
import retape.jax
from retape.jax import policies
from tests.hints.jax_gradients import PLAN, X, chain, looped, scanned
from tests.hints.rows import rows


def training(loss: Any, x: Any) -> Any:
    """A step that is given its loss."""
    return x - 0.1 * jax.grad(loss)(x)


def named(x: Any) -> Any:
    """A loss with a value of a name."""
    return jnp.sum(checkpoint_name(jnp.sin(x), "scores") ** 2)


def searched(x: Any, loop: Any) -> Any:
    """A loss behind a loop of unknown length."""
    return jnp.sum(loop(lambda v: jnp.max(v) > 0.2, lambda v: jnp.sin(v) * 0.7, x))


ROWS = [
    *rows(
        "True",
        r"""
retape.jax.advise(lambda x: x * x, 3.0)
says: Pass the bytes that the gradient may take, as in `memory="24 GiB"`
retape.jax.advise(lambda x: x * x, 3.0, memory='24 GiB').fits

retape.jax.advise(chain, X, memory='1 MB', step=lambda loss, x: x)
says: Write it as `def step(loss, params, ...)`  as: def step(loss, params
def step(loss, params):
    return params - 0.1 * jax.grad(loss)(params)
retape.jax.advise(chain, X, memory='1 MB', step=step).fits

retape.jax.advise(lambda x: (chain(x), x), X, memory='1 MB')
says: pass `has_aux=True`
f = lambda x: (chain(x), x)
retape.jax.advise(f, X, memory='1 MB', has_aux=True).fits
""",
    ),
    *rows(
        "jax.grad(looped)(X)",
        r"""
f = lambda n, x: retape.jax.fori_loop(0, n, lambda i, v: jnp.sin(v), x, levels=2)
jax.jit(f)(9, X)
says: Pass a `plan`
step = lambda i, v: jnp.sin(v) + 0.1 * v
f = lambda x, n: jnp.sum(retape.jax.fori_loop(0, n, step, x, plan=PLAN) ** 2)
jax.jit(jax.grad(f))(X, 9)

scanned(X, plan=PLAN, policy=policies.selective())
says: Pass `levels`
jax.grad(lambda x: scanned(x, levels=2, policy=policies.selective()))(X)

jax.grad(retape.jax.checkpoint(looped, policy=PLAN))(X)
says: pass it to `retape.jax.scan`
step = lambda v, _: (jnp.sin(v) + 0.1 * v, None)
f = lambda x: retape.jax.scan(step, x, None, 9, plan=PLAN)[0]
jax.grad(lambda x: jnp.sum(f(x) ** 2))(X)

jax.grad(retape.jax.checkpoint(looped, policy=policies.selective))(X)
says: call it, as in `policies.selective()`
jax.grad(retape.jax.checkpoint(looped, policy=policies.selective()))(X)
""",
    ),
    *rows(
        "jax.grad(chain)(X)",
        r"""
f = lambda x: searched(x, lax.while_loop)
retape.jax.advise(f, X, memory='1 MB', step=training)
says: write the loop as `retape.jax.while_loop`
jax.grad(lambda x: searched(x, retape.jax.while_loop))(X)
gives: jax.jacfwd(lambda x: searched(x, lax.while_loop))(X)
says: Take the gradient by `retape.jax.grad(f, plan=retape.within(...))`
f = lambda x: searched(x, lax.while_loop)
retape.jax.grad(f, plan=retape.within('1 MB'))(X)
gives: jax.jacfwd(lambda x: searched(x, lax.while_loop))(X)

found = retape.jax.advise(chain, X, memory='1 MB')
retape.jax.grad(chain, plan=found)(X)
says: pass a plan such as `retape.within(...)`
retape.jax.grad(chain, plan=retape.within('1 MB'))(X)
says: Call `jax.grad(f)`
f = chain
(jax.grad(f))(X)

policies.names(save='scores')
says: Pass the names that were given by `checkpoint_name`
save = policies.names(save=['scores'])
f = lambda x: jnp.sum(checkpoint_name(jnp.sin(x), 'scores') ** 2)
jax.grad(retape.jax.checkpoint(f, policy=save))(X)
gives: jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(X)

f = lambda x, n: jnp.sum(x**n)
retape.jax.checkpoint(f, static_argnums=1)(X, n=3)
says: use `static_argnames`
f = lambda x, n: jnp.sum(x**n)
g = retape.jax.checkpoint(f, static_argnames='n')
jax.grad(lambda x: g(x, n=3))(X)
gives: 3 * X**2

save = policies.names(save=['scores'])
jax.grad(retape.jax.checkpoint(chain, policy=save))(X)
says: give it to a value inside by `jax.ad_checkpoint.checkpoint_name(value, name)`
save, name = policies.names(save=['scores']), 'scores'
def f(x):
    value = jnp.sin(x)
    return jnp.sum(jax.ad_checkpoint.checkpoint_name(value, name) * jnp.exp(x))
jax.grad(retape.jax.checkpoint(f, policy=save))(X)

jax.grad(retape.jax.checkpoint(looped, policy='sqrt'))(X)
PlanError says: Pass one of `retape.jax.policies`
policy = retape.jax.policies.sqrt()
jax.grad(retape.jax.checkpoint(chain, policy=policy))(X)

plan = retape.within('1 MB', split='bisection')
jax.grad(retape.jax.checkpoint(chain, policy=plan))(X)
says: Pass `retape.within({})`
jax.grad(retape.jax.checkpoint(chain, policy=THE_CODE))(X)
""",
    ),
]
