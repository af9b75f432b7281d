"""The columns of the judges' tables: every way in, transformation and plan.

A way in takes a function, which may loop as often as its data say, and gives back the
gradient by its first argument. What JAX can reverse by itself can also be marked as a
layer; those ways stand in a table of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import retape
import retape.jax
from retape.jax import policies

Function = Callable[..., Any]
Way = Callable[[Function, Any], Function]

PLANS: dict[str, Any] = {
    "default": None,
    "snapshots": retape.fixed_space(snapshots=2, stage=2),
    "logarithmic": retape.logarithmic(),
    "bytes": retape.within("64 kB"),
    "bisection": retape.fixed_space(snapshots=3, stage=1, split="bisection"),
}


def _pulled(fun: Function, plan: Any) -> Function:
    def gradient(*args: Any) -> Any:
        out, pull = retape.jax.vjp(fun, *args, plan=plan)
        return pull(jnp.ones_like(out))[0]

    return gradient


WAYS: dict[str, Way] = {
    "grad": lambda f, plan: retape.jax.grad(f, plan=plan),
    "value_and_grad": lambda f, plan: (
        lambda *args: retape.jax.value_and_grad(f, plan=plan)(*args)[1]
    ),
    "vjp": _pulled,
    "checkpointed": lambda f, plan: jax.grad(retape.jax.checkpointed(f, plan=plan)),
    "store": lambda f, plan: retape.jax.grad(f, plan=plan, store=retape.MemoryStore()),
    "device": lambda f, plan: retape.jax.grad(f, plan=plan, loops="device"),
}

LAYERS: dict[str, Function] = {
    "checkpoint": retape.jax.checkpoint,
    "Checkpointed": retape.jax.Checkpointed,
    "sqrt": lambda f: retape.jax.checkpoint(f, policy=policies.sqrt()),
    "every_n": lambda f: retape.jax.checkpoint(f, policy=policies.every_n(2)),
    "names": lambda f: retape.jax.checkpoint(
        lambda *args: checkpoint_name(f(*args), "kept"),
        policy=policies.names(save=["kept"]),
    ),
    "selective": lambda f: retape.jax.checkpoint(f, policy=policies.selective()),
    "within": lambda f: retape.jax.checkpoint(f, policy=policies.within("1 MB")),
    "JAX's policy": lambda f: retape.jax.checkpoint(
        f, policy=jax.checkpoint_policies.dots_saveable
    ),
    "checkpointed": retape.jax.checkpointed,
}

TRANSFORMS: dict[str, Function] = {
    "itself": lambda g, *args: g(*args),
    "jit": lambda g, *args: jax.jit(g)(*args),
    "vmap": lambda g, x, *rest: jax.vmap(lambda x: g(x, *rest))(jnp.stack([x, x]))[1],
    "scan": lambda g, *args: lax.scan(lambda c, _: (c, g(*args)), 0, None, 2)[1][1],
}

OURS = SimpleNamespace(
    while_loop=retape.jax.while_loop,
    fori_loop=retape.jax.fori_loop,
    scan=retape.jax.scan,
    cond=lax.cond,
    switch=lax.switch,
)
"""The loops of `retape.jax` in the places of those of `jax.lax`."""


def forward_mode(fun: Function, *args: Any) -> Any:
    """The gradient by the first argument, by an oracle that keeps nothing."""
    return jax.jit(jax.jacfwd(fun))(*args)


def assert_equal(got: Any, want: Any, tolerance: float = 1e-9) -> None:
    """Trees of the same structure, shapes and types; values within a tolerance."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (np.shape(g), jnp.asarray(g).dtype) == (
            np.shape(w),
            jnp.asarray(w).dtype,
        )
        np.testing.assert_allclose(
            np.asarray(g), np.asarray(w), rtol=tolerance, atol=tolerance
        )
