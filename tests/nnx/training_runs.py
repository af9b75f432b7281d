"""Eleven networks with a stack of layers, each trained by `nnx.scan` and by ours.

Their layers are those of the eleven that are trained under `Checkpointed`: every kind
of state that a layer changes, and every way to hand it on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from tests.engines.jaxpr.layers.remat.test_flax import (
    WIDTH,
    Attending,
    Counting,
    Dropping,
    Inside,
    Normed,
    Sowing,
    Switched,
    plain,
)

LAYERS = 5
Scan = Callable[..., Any]
ONE_EACH = {"in_axes": (nnx.Carry, 0), "out_axes": nnx.Carry}


def stacked(make: Callable[[nnx.Rngs], Any]) -> Any:
    """A stack of layers, with random streams of their own."""
    rngs = nnx.Rngs(params=0, dropout=1)
    return nnx.split_rngs(splits=LAYERS)(nnx.vmap(make))(rngs)


class Stacked(nnx.Module):
    """A stack, something beside it, and the scan that runs it."""

    def __init__(self, scan: Scan, layers: Any, **others: Any) -> None:
        self.layers = nnx.data(layers)
        self.scan = nnx.static(scan)
        self.head = nnx.Linear(WIDTH, 1, rngs=nnx.Rngs(9))
        for name, value in others.items():
            setattr(self, name, nnx.data(value))

    def __call__(self, x: Any) -> Any:
        return self.head(self.run(x))

    def run(self, x: Any) -> Any:
        return self.scan(lambda x, layer: layer(x), **ONE_EACH)(x, self.layers)


class RngsAsArgument(Stacked):
    rngs: Any

    def run(self, x: Any) -> Any:
        step = lambda x, layer, rngs: layer(x, rngs=rngs)  # noqa: E731
        f = self.scan(step, in_axes=(nnx.Carry, 0, 0), out_axes=nnx.Carry)
        return nnx.split_rngs(splits=LAYERS)(f)(x, self.layers, self.rngs)


class CounterBesides(Stacked):
    """One counter, handed from layer to layer."""

    counter: Any

    def run(self, x: Any) -> Any:
        step = lambda both, layer: (layer(both[0], both[1]), both[1])  # noqa: E731
        x, self.counter = self.scan(step, **ONE_EACH)((x, self.counter), self.layers)
        return x


class Measured(Normed):
    """Metrics of its own."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)
        self.metrics = nnx.metrics.Average()

    def __call__(self, x: Any) -> Any:
        out = super().__call__(x)
        self.metrics.update(values=jnp.mean(out**2))
        return out


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.calls = nnx.BatchStat(jnp.array(0))


class Static(Stacked):
    def run(self, x: Any) -> Any:
        step = lambda x, layer: layer(x, 1, way="up")  # noqa: E731
        return self.scan(step, **ONE_EACH)(x, self.layers)


class Shared(Stacked):
    """The same weights for all layers, beside a stack."""

    same: Any

    def run(self, x: Any) -> Any:
        step = lambda x, layer, same: layer(x) + jnp.tanh(same(x))  # noqa: E731
        f = self.scan(step, in_axes=(nnx.Carry, 0, None), out_axes=nnx.Carry)
        return f(x, self.layers, self.same)


class Outputs(Stacked):
    """What every layer gives, beside what is handed on; from the last to the first."""

    def run(self, x: Any) -> Any:
        step = lambda x, layer: (layer(x), jnp.mean(x))  # noqa: E731
        f = self.scan(
            step, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0), reverse=True
        )
        x, means = f(x, self.layers)
        return x + jnp.sum(means)


MODELS: dict[str, Callable[[Scan], Any]] = {
    "dropout": lambda s: Stacked(s, stacked(Dropping)),
    "rngs as argument": lambda s: RngsAsArgument(
        s, stacked(lambda r: Dropping(r, own=False)), rngs=nnx.Rngs(dropout=3)
    ),
    "batch norm": lambda s: Stacked(s, stacked(Normed)),
    "counters": lambda s: CounterBesides(s, stacked(Counting), counter=Counter()),
    "metrics": lambda s: Stacked(s, stacked(Measured)),
    "sown values": lambda s: Stacked(s, stacked(Sowing)),
    "cache of keys and values": lambda s: Stacked(s, stacked(Attending)),
    "static arguments": lambda s: Static(s, stacked(Switched)),
    "layers in layers": lambda s: Stacked(s, stacked(lambda r: Inside(plain, r))),
    "shared weights": lambda s: Shared(
        s, stacked(Normed), same=nnx.Linear(WIDTH, WIDTH, rngs=nnx.Rngs(4))
    ),
    "outputs, in reverse": lambda s: Outputs(s, stacked(Dropping)),
}
