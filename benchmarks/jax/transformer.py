"""A transformer of 48 layers by scan: where one step is dear and takes much memory.

One layer's own derivative takes more memory than the states of all 48, so that a budget
below it can be kept by splitting inside the layer only. Against plain `scan`,
`jax.checkpoint` of the layer (the strong rival: the trip count is known), scans nested
by hand, Flax's `remat_scan` and Equinox's checkpointed scan.
Run: `python benchmarks/jax/transformer.py [MEGABYTES ...]`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _measure import compare, show
from jax import lax

import retape
import retape.jax

LAYERS, BATCH, TOKENS, WIDTH, HEADS = 48, 4, 128, 128, 4
BUDGETS = (8, 10, 12, 15, 18, 20, 25, 40, 80, 160, 320, 500)
"""Megabytes."""

Weights = dict[str, Any]


def weights(layers: int = LAYERS, width: int = WIDTH) -> Weights:
    """Random weights of all layers, stacked."""
    draw = np.random.default_rng(0)
    shapes = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    made: Weights = {
        name: jnp.asarray(
            draw.normal(size=(layers, *shape)) / np.sqrt(shape[0]), np.float32
        )
        for name, shape in shapes.items()
    }
    made |= {k: jnp.ones((layers, width), np.float32) for k in ("scale1", "scale2")}
    return made


def norm(x: Any, scale: Any) -> Any:
    """Layer normalisation without an offset."""
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def attention(x: Any, w: Weights) -> Any:
    """Causal attention."""
    b, t, c = x.shape
    qkv = (x @ w["qkv"]).reshape(b, t, 3, HEADS, c // HEADS)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(c // HEADS).astype(np.float32)
    scores = jnp.where(jnp.tri(t, dtype=bool), scores, -1e9)
    mixed = jax.nn.softmax(scores, -1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(b, t, c) @ w["out"]


def layer(x: Any, w: Weights) -> Any:
    """One layer, the normalisations in front."""
    x = x + attention(norm(x, w["scale1"]), w)
    return x + jax.nn.gelu(norm(x, w["scale2"]) @ w["up"]) @ w["down"]


def step(x: Any, w: Weights) -> tuple[Any, None]:
    return layer(x, w), None


def plain(w: Weights, x: Any) -> Any:
    return jnp.mean(lax.scan(step, x, w)[0] ** 2)


remat = functools.partial(jax.checkpoint, prevent_cse=False)


def remat_body(w: Weights, x: Any) -> Any:
    return jnp.mean(lax.scan(remat(step), x, w)[0] ** 2)


def nested(w: Weights, x: Any, outer: int = 8) -> Any:
    """Scans of 8 x 6, the inner scan and the layer rematerialised."""
    w = jax.tree.map(lambda a: a.reshape(outer, -1, *a.shape[1:]), w)
    inner = remat(lambda x, w: (lax.scan(remat(step), x, w)[0], None))
    return jnp.mean(lax.scan(inner, x, w)[0] ** 2)


def equinox_scan(w: Weights, x: Any) -> Any:
    import equinox.internal as eqxi

    return jnp.mean(eqxi.scan(step, x, w, kind="checkpointed")[0] ** 2)


def unrolled(w: Weights, x: Any) -> Any:
    """The same without a loop."""
    for i in range(LAYERS):
        x = layer(x, jax.tree.map(lambda a, i=i: a[i], w))
    return jnp.mean(x**2)


def linen(w: Weights, x: Any) -> Callable[..., Any]:
    """Flax's `remat_scan`, 8 x 6: its own weights, the same shapes and code."""
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            own = {
                k: self.param(k, lambda _, s: jnp.zeros(s, np.float32), a.shape[1:])
                for k, a in w.items()
            }
            return layer(x, own)

    model = nn.remat_scan(Layer, lengths=(8, 6))()
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    names = [path[-1].key for path, _ in paths]

    def fun(w: Weights, x: Any) -> Any:
        leaves = [w[n].reshape(s.shape) for n, (_, s) in zip(names, paths, strict=True)]
        params = jax.tree_util.tree_unflatten(tree, leaves)
        return jnp.mean(model.apply(params, x) ** 2)

    return fun


def main(budgets: Sequence[float]) -> None:
    w = weights()
    shape = (BATCH, TOKENS, WIDTH)
    x = jnp.asarray(np.random.default_rng(1).normal(size=shape), np.float32)
    candidates: dict[str, Callable[..., Any]] = {
        "plain scan": jax.grad(plain),
        "jax.checkpoint of the layer": jax.grad(remat_body),
        "by hand, 8 x 6": jax.grad(nested),
        "linen.remat_scan, 8 x 6": jax.grad(linen(w, x)),
        "equinox, default": jax.grad(equinox_scan),
    }
    for megabytes in budgets:
        plan = retape.within(int(megabytes * 1e6))
        try:
            found = retape.jax.explain(plain, w, x, plan=plan)
        except retape.BudgetError as error:
            print(f"{megabytes:g} MB refused: {error}", flush=True)
            continue
        name = f"retape, {megabytes:g} MB, {found.steps} steps of {found.blocks} blocks"
        candidates[name] = retape.jax.grad(plain, plan=plan)
    rows = compare(candidates, (w, x), base="plain scan", rounds=3)
    device = jax.devices()[0].device_kind
    show(f"{LAYERS} layers by scan on {device}, JAX {jax.__version__}", rows)


if __name__ == "__main__":
    main([float(a) for a in sys.argv[1:]] or BUDGETS)
