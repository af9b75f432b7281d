"""48 decoder layers of 65,536 tokens and width 2,048: what their gradient keeps.

The stack is compiled and not run: no array of it is made. Float16 stands for bfloat16,
whose loops the CPU's compiler widens to single precision. Then 8,192 tokens are run for
real at reduced width. Peers: `nnx.scan` with `nnx.remat` on the layer, and
`flax.linen.remat_scan` on a Linen module that holds the same weights.

    python -m benchmarks.layers.nnx_stack [--tokens 65536] [--only-real]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.harness import EXAMPLES
from flax import linen, nnx

import retape.nnx

sys.path.insert(0, str(EXAMPLES / "decoder"))

import decoder  # noqa: E402

LAYERS = 48


class Linen(linen.Module):
    """A decoder layer as a Linen module: the same arrays, the same operations."""

    graph: Any
    arrays: Any

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        flat = {
            path: self.param(
                ".".join(map(str, path)),
                linen.initializers.zeros,
                like.shape,
                like.dtype,
            )
            for path, like in self.arrays
        }
        state = nnx.State.from_flat_path(
            {path: nnx.Param(value) for path, value in flat.items()}
        )
        return nnx.merge(self.graph, state)(x)


def linen_gradient(shape: decoder.Shape, lengths: tuple[int, ...]) -> Any:
    """The gradient by `linen.remat_scan`, and its abstract weights."""
    layer = nnx.eval_shape(lambda: decoder.Layer(shape, nnx.Rngs(0)))
    graph, state = nnx.split(layer)
    arrays = tuple((path, leaf.get_value()) for path, leaf in nnx.to_flat_state(state))
    model = linen.remat_scan(Linen, lengths=lengths)(graph, arrays)

    def gradient(weights: Any, x: jax.Array) -> Any:
        loss = lambda w: jnp.sum(jnp.square(model.apply(w, x)).astype(jnp.float32))  # noqa: E731
        return jax.grad(loss)(weights)

    x = jax.ShapeDtypeStruct((1, shape.block or 1, shape.width), shape.dtype)
    return gradient, jax.eval_shape(model.init, jax.random.key(0), x)


def gradient_of(graph: Any, scan: Callable[..., Any], body: Any = None) -> Any:
    """The gradient by a scan with NNX's call."""

    def gradient(state: Any, x: jax.Array) -> Any:
        def loss(state: Any) -> jax.Array:
            f = scan(
                body or (lambda x, layer: layer(x)),
                in_axes=(nnx.Carry, 0),
                out_axes=nnx.Carry,
            )
            y = f(x, nnx.merge(graph, state))
            return jnp.sum(jnp.square(y).astype(jnp.float32))

        return jax.grad(loss)(state)

    return gradient


def candidates(shape: decoder.Shape) -> dict[str, tuple[Any, Any]]:
    """Each gradient with its abstract weights."""
    stack = nnx.eval_shape(lambda: decoder.stack(shape, nnx.Rngs(0)))
    graph, state = nnx.split(stack)
    marked = nnx.remat(lambda x, layer: layer(x))
    found = {"nnx.scan and nnx.remat": (gradient_of(graph, nnx.scan, marked), state)}
    for lengths in ((8, 6), (8, 6, 1)):
        found[f"linen.remat_scan {lengths}"] = linen_gradient(shape, lengths)
    for options in ({"segment_length": 6}, {"levels": 2}, {"levels": 3}):
        name = ", ".join(f"{key}={value}" for key, value in options.items())
        ours = partial(retape.nnx.remat_scan, **options)
        found[f"remat_scan {name}"] = gradient_of(graph, ours), state
    return found


def abstract(shape: decoder.Shape, tokens: int) -> None:
    """Compile all; print what each needs beside its arguments."""
    carry = tokens * shape.width * jnp.dtype(shape.dtype).itemsize
    print(f"{LAYERS} layers, {tokens} tokens, width {shape.width}")
    print(f"the carries of all layers: {LAYERS * carry / 2**30:.2f} GiB")
    x = jax.ShapeDtypeStruct((1, tokens, shape.width), shape.dtype)
    base = 0
    for name, (gradient, weights) in candidates(shape).items():
        began = time.perf_counter()
        compiled = jax.jit(gradient).lower(weights, x).compile()
        size = compiled.memory_analysis().temp_size_in_bytes
        base = base or size
        print(
            f"{name:28} {size / 2**30:8.2f} GiB, {(base - size) / 2**30:6.2f} GiB or "
            f"{(base - size) / carry:5.1f} carries less; compiled in "
            f"{time.perf_counter() - began:.0f} s",
            flush=True,
        )


def real(tokens: int = 8192) -> None:
    """Run 8,192 tokens at reduced width, by NNX's scan and by ours."""
    shape = decoder.Shape(
        layers=12, width=32, heads=1, groups=1, head=16, hidden=96, block=256
    )
    stack = nnx.jit(lambda: decoder.stack(shape, nnx.Rngs(0)))()
    graph, state = nnx.split(stack)
    x = jax.random.normal(jax.random.key(1), (1, tokens, shape.width))
    marked = nnx.remat(lambda x, layer: layer(x))
    print(f"\n{shape.layers} layers, {tokens} tokens, width {shape.width}, for real")
    results: list[Any] = []
    for name, gradient in {
        "nnx.scan and nnx.remat": gradient_of(graph, nnx.scan, marked),
        "remat_scan levels=2": gradient_of(graph, retape.nnx.remat_scan),
    }.items():
        compiled = jax.jit(gradient).lower(state, x).compile()
        size, began = compiled.memory_analysis().temp_size_in_bytes, time.process_time()
        results.append(jax.block_until_ready(compiled(state, x)))
        seconds = time.process_time() - began
        print(f"{name:28} {size / 2**20:8.1f} MiB, {seconds:.0f} processor seconds")
    norms = [[float(jnp.linalg.norm(a)) for a in jax.tree.leaves(r)] for r in results]
    apart = max(abs(a - b) / a for a, b in zip(*norms, strict=True))
    print(f"largest relative difference of the gradients' norms: {apart:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--width", type=int, default=2_048)
    parser.add_argument("--only-real", action="store_true")
    given = parser.parse_args()
    shape = decoder.Shape(
        layers=LAYERS,
        width=given.width,
        heads=given.width // 128,
        groups=given.width // 256,
        head=128,
        hidden=3 * given.width,
        block=64,
        dtype=jnp.float16,
    )
    if not given.only_real:
        abstract(shape, given.tokens)
    real()


if __name__ == "__main__":
    main()
