"""Layers of Flax with every kind of state that a call changes, and ways to call one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

WIDTH = 4
Mark = Callable[..., Any]


class Dropping(nnx.Module):
    """It draws random numbers, of its own or of an argument."""

    def __init__(self, rngs: nnx.Rngs, *, own: bool = True) -> None:
        self.linear = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs if own else None)

    def __call__(self, x: Any, rngs: Any = None) -> Any:
        return x + self.drop(jnp.tanh(self.linear(x)), rngs=rngs)


class Normed(nnx.Module):
    """It has running statistics."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.norm(jnp.sin(self.linear(x)))


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.calls = nnx.BatchStat(jnp.array(0))


class Counting(Normed):
    """It changes a counter, and one that it is handed; and it makes an attribute."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)
        self.calls = nnx.BatchStat(jnp.array(0))

    def __call__(self, x: Any, other: Any = None) -> Any:
        self.calls[...] += 1
        if other is not None:
            other.calls[...] += 2
        self.largest = nnx.BatchStat(jnp.max(x))
        return super().__call__(x)


class Measuring(Normed):
    def __call__(self, x: Any, metrics: Any) -> Any:
        out = super().__call__(x)
        metrics.update(values=jnp.mean(out**2))
        return out


class Sowing(Normed):
    def __call__(self, x: Any) -> Any:
        self.sow(nnx.Intermediate, "seen", jnp.mean(x))
        return super().__call__(x)


class Attending(nnx.Module):
    """A decoder's attention, token by token, with its cache."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=True, rngs=rngs)
        self.attention.init_cache((3, 9, WIDTH))

    def __call__(self, x: Any) -> Any:
        return x + self.attention(x[:, None])[:, 0]


class Switched(Dropping):
    """It has arguments that Python looks at."""

    def __call__(self, x: Any, train: Any, *, way: str = "") -> Any:
        out = super().__call__(x) if train == 1 else x * 2
        return out if way == "up" else -out


class Stack(nnx.Module):
    """Marked layers as attributes of a layer."""

    def __init__(self, mark: Mark, rngs: nnx.Rngs) -> None:
        self.first = mark(Dropping(rngs))
        self.rest = nnx.List([mark(Normed(rngs)) for _ in range(2)])

    def __call__(self, x: Any) -> Any:
        for layer in (self.first, *self.rest):
            x = layer(x)
        return x


class Model(nnx.Module):
    """A layer that is called twice, beside a module that it is given."""

    def __init__(self, layer: Any, call: Callable[..., Any], other: Any = None) -> None:
        self.layer = nnx.data(layer)
        self.other = nnx.data(other)
        self.call = nnx.static(call)

    def __call__(self, x: Any, mark: Mark) -> Any:
        for _ in range(2):
            x = self.call(mark, self.layer, x, self.other)
        return x


def _rngs() -> nnx.Rngs:
    return nnx.Rngs(params=0, dropout=1)


def _switched(mark: Mark, layer: Any, x: Any, _: Any) -> Any:
    marked = mark(layer, static_argnums=1, static_argnames="way")
    return marked(marked(x, 1, way="up"), 0)


def _alone(mark: Mark, layer: Any, x: Any, _: Any) -> Any:
    return mark(layer)(x)


MODELS: dict[str, Callable[[Mark], Model]] = {
    "dropout": lambda _: Model(Dropping(_rngs()), _alone),
    "rngs as argument": lambda _: Model(
        Dropping(_rngs(), own=False),
        lambda mark, layer, x, rngs: mark(layer)(mark(layer)(x, rngs=rngs), rngs),
        nnx.Rngs(dropout=3),
    ),
    "batch norm": lambda _: Model(Normed(_rngs()), _alone),
    "counters": lambda _: Model(
        Counting(_rngs()),
        lambda mark, layer, x, other: mark(layer)(mark(layer)(x, other), other=other),
        Counter(),
    ),
    "metrics": lambda _: Model(
        Measuring(_rngs()),
        lambda mark, layer, x, metrics: mark(layer)(x, metrics),
        nnx.metrics.Average(),
    ),
    "sown values": lambda _: Model(Sowing(_rngs()), _alone),
    "cache of keys and values": lambda _: Model(Attending(_rngs()), _alone),
    "static arguments": lambda _: Model(Switched(_rngs()), _switched),
    "as attributes": lambda mark: Model(Stack(mark, _rngs()), _alone),
    "a method": lambda _: Model(
        Counting(_rngs()), lambda mark, layer, x, _: mark(layer.__call__)(x)
    ),
    "a function of modules": lambda _: Model(
        Dropping(_rngs()),
        lambda mark, layer, x, _: mark(lambda n, x: n(n(x)))(layer, x),
    ),
    "a module by name": lambda _: Model(
        Normed(_rngs()), lambda mark, layer, x, _: mark(lambda x, n: n(x))(x, n=layer)
    ),
}
