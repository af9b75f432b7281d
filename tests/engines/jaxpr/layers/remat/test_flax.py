"""`Checkpointed` Flax layers in training: every state as without it, to the bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import retape.jax
from retape.jax import Checkpointed

Wrap = Callable[[Any], Any]
WIDTH = 8
STEPS = 2
STATISTICS = ["batch_stats"]


def plain(layer: Any) -> Any:
    return layer


def data(step: int) -> Any:
    rng = np.random.default_rng(step)
    return jnp.asarray(rng.normal(size=(4, WIDTH)))


class Model(nnx.Module):
    """One layer, something beside it, and a way to call it."""

    def __init__(self, wrap: Wrap, layer: Any, **others: Any) -> None:
        self.layer = nnx.data(layer)
        self.wrap = nnx.static(wrap)
        self.head = nnx.Linear(WIDTH, 1, rngs=nnx.Rngs(9))
        for name, value in others.items():
            setattr(self, name, nnx.data(value))

    def __call__(self, x: Any) -> Any:
        return self.head(self.run(self.wrap(self.layer), x))

    def run(self, layer: Any, x: Any) -> Any:
        return layer(layer(x))


class Dropping(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, *, own: bool = True) -> None:
        self.linear = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs if own else None)

    def __call__(self, x: Any, rngs: Any = None) -> Any:
        return x + self.drop(jnp.tanh(self.linear(x)), rngs=rngs)


class RngsAsArgument(Model):
    def run(self, layer: Any, x: Any) -> Any:
        return layer(layer(x, rngs=self.rngs), self.rngs)


class Normed(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.norm(jnp.sin(self.linear(x)))


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.calls = nnx.BatchStat(jnp.array(0))


class Counting(Normed):
    """Changes a counter of its own, one that it is handed, and a plain attribute."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)
        self.calls = nnx.BatchStat(jnp.array(0))

    def __call__(self, x: Any, other: Any = None) -> Any:
        self.calls[...] += 1
        if other is not None:
            other.calls[...] += 2
        self.largest = nnx.BatchStat(jnp.max(x))  # made in the call
        return super().__call__(x)


class CounterAsArgument(Model):
    def run(self, layer: Any, x: Any) -> Any:
        return layer(layer(x, self.counter), other=self.counter)


class Measuring(Normed):
    def __call__(self, x: Any, metrics: Any = None) -> Any:
        out = super().__call__(x)
        metrics.update(values=jnp.mean(out**2))
        return out


class MetricsAsArgument(Model):
    def run(self, layer: Any, x: Any) -> Any:
        return layer(layer(x, self.metrics), self.metrics)


class Sowing(Normed):
    def __call__(self, x: Any) -> Any:
        self.sow(nnx.Intermediate, "seen", jnp.mean(x))
        return super().__call__(x)


class Attending(nnx.Module):
    """A decoder's attention, token by token, with its cache."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=True, rngs=rngs)
        self.attention.init_cache((4, 9, WIDTH))

    def __call__(self, x: Any) -> Any:
        return x + self.attention(x[:, None])[:, 0]


class Switched(Dropping):
    """An argument that Python looks at."""

    def __call__(self, x: Any, train: Any, *, way: str = "") -> Any:
        out = super().__call__(x) if train == 1 else x * 2
        return out if way == "up" else -out


class Static(Model):
    def run(self, layer: Any, x: Any) -> Any:
        return layer(layer(x, 1, way="up"), 0)


class Inside(nnx.Module):
    """A marked layer as an attribute, and one inside another."""

    def __init__(self, wrap: Wrap, rngs: nnx.Rngs) -> None:
        self.first = wrap(Dropping(rngs))
        self.rest = nnx.List([wrap(Normed(rngs)) for _ in range(2)])

    def __call__(self, x: Any) -> Any:
        for layer in (self.first, *self.rest):
            x = layer(x)
        return x


class ByMethod(Model):
    def run(self, layer: Any, x: Any) -> Any:
        return layer(x)

    def __call__(self, x: Any) -> Any:
        return self.head(self.wrap(self.layer.__call__)(x))


class ByFunction(Model):
    """A function of modules, which are its arguments."""

    def __call__(self, x: Any) -> Any:
        return self.head(self.wrap(lambda layer, x: layer(layer(x)))(self.layer, x))


def checkpointed_switch(layer: Any) -> Any:
    return Checkpointed(layer, static_argnums=1, static_argnames="way")


def metrics() -> Any:
    return nnx.metrics.Average()


def rngs() -> nnx.Rngs:
    return nnx.Rngs(params=0, dropout=1)


MODELS: dict[str, Callable[[Wrap], Any]] = {
    "dropout": lambda w: Model(w, Dropping(rngs())),
    "rngs as argument": lambda w: RngsAsArgument(
        w, Dropping(rngs(), own=False), rngs=nnx.Rngs(dropout=3)
    ),
    "batch norm": lambda w: Model(w, Normed(rngs())),
    "counters": lambda w: CounterAsArgument(w, Counting(rngs()), counter=Counter()),
    "metrics": lambda w: MetricsAsArgument(w, Measuring(rngs()), metrics=metrics()),
    "sown values": lambda w: Model(w, Sowing(rngs())),
    "cache of keys and values": lambda w: Model(w, Attending(rngs())),
    "static arguments": lambda w: Static(
        plain if w is plain else checkpointed_switch, Switched(rngs())
    ),
    "as attributes": lambda w: Model(w, Inside(w, rngs())),
    "a method": lambda w: ByMethod(w, Counting(rngs())),
    "a function of modules": lambda w: ByFunction(w, Dropping(rngs())),
}


def in_double_precision(value: Any) -> Any:
    return value.astype("float64") if value.dtype == jnp.float32 else value


def train(model: Any) -> tuple[Any, Any]:
    """Steps of gradient descent: what the layers hold at the end, and the losses."""

    @nnx.jit
    def step(model: Any, x: Any) -> Any:
        def loss(model: Any) -> Any:
            return (model(x) ** 2).mean()

        value, slope = nnx.value_and_grad(loss)(model)
        params = nnx.state(model, nnx.Param)
        nnx.update(model, jax.tree.map(lambda p, s: p - 0.1 * s, params, slope))
        return value

    with jax.enable_x64(True):
        state = jax.tree.map(in_double_precision, nnx.state(model))
        nnx.update(model, state)
        losses = [step(model, data(i)) for i in range(STEPS)]
    return jax.tree.leaves(nnx.state(model)), losses


def assert_same(got: Any, want: Any) -> None:
    """Counters, keys and masks to the bit; numbers as two compilations differ."""

    def compare(a: Any, b: Any) -> None:
        assert a.dtype == b.dtype
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        allowed = {"float32": 2e-6, "float64": 1e-12}.get(str(a.dtype), 0.0)
        largest = float(np.max(np.abs(b), initial=1.0))
        np.testing.assert_allclose(a, b, rtol=0, atol=allowed * largest)

    jax.tree.map(compare, got, want)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_training_is_as_without_it(name: str) -> None:
    want = train(MODELS[name](plain))
    got = train(MODELS[name](Checkpointed))
    assert_same(got, want)


class Heavy(nn.Module):
    """More to store than its arguments."""

    @nn.compact
    def __call__(self, x: Any, times: int = 4) -> Any:
        h = x
        for _ in range(times):
            h = jnp.tanh(jnp.cumsum(jnp.sin(h), 1))
        return x + nn.BatchNorm(use_running_average=False)(nn.Dense(16)(h))


class InSetup(nn.Module):
    wrap: Wrap
    field: Any

    def setup(self) -> None:
        self.first = self.wrap(Heavy())
        self.rest = [self.wrap(Heavy()) for _ in range(2)]
        self.named = self.wrap(Heavy(name="by_hand"))

    def __call__(self, x: Any) -> Any:
        for layer in (self.first, *self.rest, self.named, self.field):
            x = layer(x, 4)
        return (x**2).mean()


class Compact(nn.Module):
    wrap: Wrap
    field: Any

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(3):
            x = self.wrap(Heavy())(x, times=4)
        return (self.field(x) ** 2).mean()


@pytest.mark.slow
@pytest.mark.parametrize("parent", [InSetup, Compact])
def test_linen_modules_inside_linen_modules_save_memory(parent: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(256, 16)), jnp.float32)
    key = jax.random.key(0)

    def asked(wrap: Wrap) -> tuple[Any, Any, int]:
        model = parent(wrap, wrap(Heavy()))
        variables = model.init(key, x)

        def loss(params: Any) -> Any:
            return model.apply({**variables, "params": params}, x, mutable=STATISTICS)

        slope = jax.jit(jax.grad(loss, has_aux=True)).lower(variables["params"])
        program = slope.compile()
        found = program(variables["params"])
        return variables, found, program.memory_analysis().temp_size_in_bytes

    want, slope, most = asked(plain)
    got, same, less = asked(lambda m: Checkpointed(m, static_argnames="times"))
    assert_same(got, want)
    assert_same(same, slope)
    assert less < most / 2


def test_an_unbound_linen_module_is_flax_s_own_error() -> None:
    with pytest.raises(Exception, match="unbound module"):
        Checkpointed(Heavy())(jnp.ones((2, 16)))


def test_a_marked_layer_keeps_the_layer_s_attributes() -> None:
    layer = Checkpointed(Counting(rngs()))
    assert layer.calls[...] == 0
    layer.calls[...] = 3
    assert layer.calls[...] == 3
    assert retape.jax.Checkpointed(jnp.sin).__name__ == "sin"


@pytest.mark.slow
def test_an_equinox_module_stays_a_pytree_with_its_parameters() -> None:
    plain = eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))
    layer = Checkpointed(plain)
    assert layer.depth == 2
    x = jnp.ones(3)

    def loss(model: Any) -> Any:
        return (model(x) ** 2).sum()

    slope = eqx.filter_grad(loss)
    assert_same(
        jax.tree.leaves(eqx.filter(slope(layer), eqx.is_array)),
        jax.tree.leaves(eqx.filter(slope(plain), eqx.is_array)),
    )
    assert isinstance(jax.tree.map(lambda v: v, layer), Checkpointed)
    assert copy.copy(layer).depth == 2
