"""Stacks of layers of Flax on a device that is not here: bytes, kernels and waits.

    python -m benchmarks.accelerators.stacks [--device h100] [--layers 48]
        [--tokens 65536] [--width 2048]

The sizes by default are those of the question that `remat_scan` answers: 48 layers of
65,536 tokens and width 2,048 in bfloat16. Each way's gradient by weights and tokens is
compiled for the device from types, so that a laptop will do. Bytes are temporaries, to
which the weights, the tokens and their gradients come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.accelerators.described import Taken, device
from benchmarks.harness import Table, asked, missing

import retape.nnx
from retape.engines.jaxpr.jaxprs._target import compiling_for
from retape.engines.jaxpr.xla._ahead_of_time import aot_lower, compiled
from retape.engines.jaxpr.xla._launches import launches

Way = tuple[str, Callable[..., Any], Any]
"""Its name, the loss of weights and tokens, and the types of the weights."""


def of_nnx(layers: int, width: int) -> Iterator[Way]:
    """Stacks of Flax NNX."""
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            kind = {"dtype": jnp.bfloat16, "param_dtype": jnp.bfloat16, "rngs": rngs}
            self.norm = nnx.LayerNorm(width, **kind)
            self.up = nnx.Linear(width, 4 * width, **kind)
            self.down = nnx.Linear(4 * width, width, **kind)

        def __call__(self, x: Any) -> Any:
            return x + self.down(nnx.gelu(self.up(self.norm(x))))

    def stack() -> Any:
        return nnx.split_rngs(splits=layers)(nnx.vmap(Layer))(nnx.Rngs(0))

    graph, weights = nnx.split(nnx.eval_shape(stack))
    axes: dict[str, Any] = {"in_axes": (nnx.Carry, 0), "out_axes": nnx.Carry}
    call = lambda x, layer: layer(x)  # noqa: E731
    ours = partial(retape.nnx.remat_scan, call, **axes)
    ways: dict[str, Callable[..., Any]] = {
        "nnx.scan": partial(nnx.scan, call, **axes),
        "nnx.scan, nnx.remat": partial(nnx.scan, nnx.remat(call), **axes),
        "retape.nnx.remat_scan": ours,
        "retape.nnx.remat_scan, 3 levels": partial(ours, levels=3),
        "retape.nnx.remat_scan, segments of 6": partial(ours, segment_length=6),
    }
    for name, scan in ways.items():

        def loss(weights: Any, x: Any, scan: Callable[..., Any] = scan) -> Any:
            y = scan()(x, nnx.merge(graph, weights))
            return jnp.mean(jnp.square(y.astype(jnp.float32)))

        yield name, loss, weights


def of_linen(layers: int, width: int) -> Iterator[Way]:
    """Linen's own, of two levels and three."""
    from flax import linen

    kind = {"dtype": jnp.bfloat16, "param_dtype": jnp.bfloat16}

    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            h = linen.Dense(4 * width, **kind)(linen.LayerNorm(**kind)(x))
            return x + linen.Dense(width, **kind)(linen.gelu(h))

    few = max(n for n in range(1, layers + 1) if layers % n == 0 and n * n <= layers)
    for lengths in (few, layers // few), (2, few // 2 or 1, layers // few):
        model = linen.remat_scan(Layer, lengths=lengths)()
        some = jax.ShapeDtypeStruct((1, width), jnp.bfloat16)
        weights = jax.eval_shape(model.init, jax.random.key(0), some)

        def loss(weights: Any, x: Any, model: Any = model) -> Any:
            return jnp.mean(jnp.square(model.apply(weights, x).astype(jnp.float32)))

        yield f"linen.remat_scan, {' x '.join(map(str, lengths))}", loss, weights


def taken(loss: Callable[..., Any], *types: Any) -> Taken:
    """What the device's compiler says of the gradient of a loss by its arguments."""
    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    program = compiled(aot_lower(gradient, *types))
    told, text = program.memory_analysis(), program.as_text()
    assert told is not None and text is not None
    return Taken(told.temp_size_in_bytes, *launches(text))


def main() -> None:
    """Print a row for each way."""
    missing("flax")
    options = {"device": "h100", "layers": 48, "tokens": 65_536, "width": 2_048}
    given = asked(__doc__, (), {"layers": 6, "tokens": 32, "width": 16}, **options)
    described = device(given.device, fetch=not given.quick)
    tokens = jax.ShapeDtypeStruct((given.tokens, given.width), jnp.bfloat16)
    print(f"{described.title}, compiled by JAX {jax.__version__}")
    table = Table("", "temporaries, GiB", "kernels a layer", "waits")
    for ways in of_nnx, of_linen:
        for name, loss, weights in ways(given.layers, given.width):
            with compiling_for(described):
                found = taken(loss, weights, tokens)
            per_layer = (found.kernels or 0) / given.layers
            table.row(name, found.temp / 2**30, per_layer, found.waits)


if __name__ == "__main__":
    main()
