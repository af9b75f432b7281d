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
from tests.hints.rows import Row


def training(loss: Any, x: Any) -> Any:
    """A step that is given its loss."""
    return x - 0.1 * jax.grad(loss)(x)


def named(x: Any) -> Any:
    """A loss with a value of a name."""
    return jnp.sum(checkpoint_name(jnp.sin(x), "scores") ** 2)


def searched(x: Any, loop: Any) -> Any:
    """A loss behind a loop of unknown length."""
    return jnp.sum(loop(lambda v: jnp.max(v) > 0.2, lambda v: jnp.sin(v) * 0.7, x))


PLAIN = "jax.grad(looped)(X)"
ROWS = [
    Row(
        'Pass the bytes that the gradient may take, as in `memory="24 GiB"`',
        "retape.jax.advise(lambda x: x * x, 3.0)",
        "retape.jax.advise(lambda x: x * x, 3.0, memory='24 GiB').fits",
    ),
    Row(
        "Pass a `plan`",
        "jax.jit(lambda n, x: retape.jax.fori_loop("
        "0, n, lambda i, v: jnp.sin(v), x, levels=2))(9, X)",
        "jax.jit(jax.grad(lambda x, n: retape.jax.fori_loop("
        "0, n, lambda i, v: jnp.sin(v) + 0.1 * v, x, plan=PLAN"
        ").__pow__(2).sum()))(X, 9)",
        PLAIN,
    ),
    Row(
        "Pass `levels`",
        "scanned(X, plan=PLAN, policy=policies.selective())",
        "jax.grad(lambda x: scanned(x, levels=2, policy=policies.selective()))(X)",
        PLAIN,
    ),
    Row(
        "Write it as `def step(loss, params, ...)`",
        "retape.jax.advise(chain, X, memory='1 MB', step=lambda loss, x: x)",
        """
def step(loss, params):
    return params - 0.1 * jax.grad(loss)(params)

retape.jax.advise(chain, X, memory='1 MB', step=step).fits
""",
        written="def step(loss, params",
    ),
    Row(
        "pass `has_aux=True`",
        "retape.jax.advise(lambda x: (chain(x), x), X, memory='1 MB')",
        "f = lambda x: (chain(x), x)\n"
        "retape.jax.advise(f, X, memory='1 MB', has_aux=True).fits",
    ),
    Row(
        "write the loop as `retape.jax.while_loop`",
        "f = lambda x: searched(x, lax.while_loop)\n"
        "retape.jax.advise(f, X, memory='1 MB', step=training)",
        "jax.grad(lambda x: searched(x, retape.jax.while_loop))(X)",
        "jax.jacfwd(lambda x: searched(x, lax.while_loop))(X)",
    ),
    Row(
        "Take the gradient by `retape.jax.grad(f, plan=retape.within(...))`",
        "f = lambda x: searched(x, lax.while_loop)\n"
        "retape.jax.advise(f, X, memory='1 MB', step=training)",
        "f = lambda x: searched(x, lax.while_loop)\n"
        "retape.jax.grad(f, plan=retape.within('1 MB'))(X)",
        "jax.jacfwd(lambda x: searched(x, lax.while_loop))(X)",
    ),
    Row(
        "pass a plan such as `retape.within(...)`",
        "found = retape.jax.advise(chain, X, memory='1 MB')\n"
        "retape.jax.grad(chain, plan=found)(X)",
        "retape.jax.grad(chain, plan=retape.within('1 MB'))(X)",
        "jax.grad(chain)(X)",
    ),
    Row(
        "Call `jax.grad(f)`",
        "found = retape.jax.advise(chain, X, memory='1 MB')\n"
        "retape.jax.grad(chain, plan=found)(X)",
        "f = chain\n(jax.grad(f))(X)",
        "jax.grad(chain)(X)",
    ),
    Row(
        "Pass the names that were given by `checkpoint_name`",
        "policies.names(save='scores')",
        "save = policies.names(save=['scores'])\n"
        "f = lambda x: jnp.sum(checkpoint_name(jnp.sin(x), 'scores') ** 2)\n"
        "jax.grad(retape.jax.checkpoint(f, policy=save))(X)",
        "jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(X)",
    ),
    Row(
        "use `static_argnames`",
        "f = lambda x, n: jnp.sum(x**n)\n"
        "retape.jax.checkpoint(f, static_argnums=1)(X, n=3)",
        "f = lambda x, n: jnp.sum(x**n)\n"
        "g = retape.jax.checkpoint(f, static_argnames='n')\n"
        "jax.grad(lambda x: g(x, n=3))(X)",
        "3 * X**2",
    ),
    Row(
        "give it to a value inside by `jax.ad_checkpoint.checkpoint_name(value, name)`",
        "save = policies.names(save=['scores'])\n"
        "jax.grad(retape.jax.checkpoint(chain, policy=save))(X)",
        """
save, name = policies.names(save=['scores']), 'scores'

def f(x):
    value = jnp.sin(x)
    return jnp.sum(jax.ad_checkpoint.checkpoint_name(value, name) * jnp.exp(x))

jax.grad(retape.jax.checkpoint(f, policy=save))(X)
""",
        "jax.grad(chain)(X)",
    ),
    Row(
        "pass it to `retape.jax.scan`",
        "jax.grad(retape.jax.checkpoint(looped, policy=PLAN))(X)",
        "step = lambda v, _: (jnp.sin(v) + 0.1 * v, None)\n"
        "f = lambda x: retape.jax.scan(step, x, None, 9, plan=PLAN)[0]\n"
        "jax.grad(lambda x: jnp.sum(f(x) ** 2))(X)",
        PLAIN,
    ),
    Row(
        "call it, as in `policies.selective()`",
        "jax.grad(retape.jax.checkpoint(looped, policy=policies.selective))(X)",
        "jax.grad(retape.jax.checkpoint(looped, policy=policies.selective()))(X)",
        PLAIN,
    ),
    Row(
        "Pass one of `retape.jax.policies`",
        "jax.grad(retape.jax.checkpoint(looped, policy='sqrt'))(X)",
        "policy = retape.jax.policies.sqrt()\n"
        "jax.grad(retape.jax.checkpoint(chain, policy=policy))(X)",
        "jax.grad(chain)(X)",
    ),
    Row(
        "Pass `retape.within({})`",
        "plan = retape.within('1 MB', split='bisection')\n"
        "jax.grad(retape.jax.checkpoint(chain, policy=plan))(X)",
        "jax.grad(retape.jax.checkpoint(chain, policy=THE_CODE))(X)",
        "jax.grad(chain)(X)",
    ),
]
