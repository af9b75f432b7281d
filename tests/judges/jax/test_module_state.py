"""What a call changes in a module is changed once, whatever marks the call.

The rows are modules of NNX with every kind of state, the columns Retape's marks. The
oracle is the call without a mark. Linen's and Equinox's layers stand below.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import retape.jax as rj
from tests.judges.jax.module_layers import MODELS, WIDTH, Counting

X = np.sin(np.arange(3.0 * WIDTH)).reshape(3, WIDTH)
MARKS: dict[str, Callable[..., Any]] = {
    "Checkpointed": rj.Checkpointed,
    "checkpoint": rj.checkpoint,
    "without a barrier": lambda f, **how: rj.checkpoint(f, prevent_cse=False, **how),
    "sqrt": lambda f, **how: rj.checkpoint(f, policy=rj.policies.sqrt(), **how),
    "checkpointed": rj.checkpointed,
}


def unmarked(f: Any, **_: Any) -> Any:
    return f


def plain(v: Any) -> Any:
    """A key as its numbers."""
    is_key = jnp.issubdtype(v.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(v) if is_key else v


def in_double_precision(value: Any) -> Any:
    return value.astype("float64") if value.dtype == jnp.float32 else value


def assert_same(got: Any, want: Any) -> None:
    """Counters, keys and masks to the bit; numbers as two compilations differ."""

    def compare(a: Any, b: Any) -> None:
        a, b = plain(a), plain(b)
        assert a.dtype == b.dtype
        allowed = {"float32": 2e-6, "float64": 1e-12}.get(str(a.dtype), 0.0)
        largest = float(np.max(np.abs(b), initial=1.0))
        np.testing.assert_allclose(a, b, rtol=0, atol=allowed * largest)

    jax.tree.map(compare, got, want)


def trained(name: str, mark: Callable[..., Any], *, jitted: bool) -> list[Any]:
    """Value and gradient, a call after them, and all that the model holds then."""
    model = MODELS[name](mark)
    taken = nnx.value_and_grad(lambda model, x: (model(x, mark) ** 2).mean())
    with jax.enable_x64(True):
        x = jnp.asarray(X)
        nnx.update(model, jax.tree.map(in_double_precision, nnx.state(model)))
        found = (nnx.jit(taken) if jitted else taken)(model, x)
        return jax.tree.leaves([found, model(x, mark), nnx.state(model)])


FAST = {
    ("rngs as argument", "Checkpointed"),
    ("counters", "checkpoint"),
    ("static arguments", "Checkpointed"),
    ("a method", "sqrt"),
}


def can_be(row: str, column: str) -> bool:
    """Only a layer is an attribute of one; `checkpointed` has no static arguments."""
    lacking = {"as attributes": set(MARKS) - {"Checkpointed"}}
    lacking["static arguments"] = {"checkpointed"}
    return column not in lacking.get(row, ())


CELLS = [
    pytest.param(row, column, marks=() if (row, column) in FAST else pytest.mark.slow)
    for row in MODELS
    for column in MARKS
    if can_be(row, column)
]


@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
@pytest.mark.parametrize(("row", "column"), CELLS)
def test_state_changes_once(row: str, column: str) -> None:
    jitted = column in ("Checkpointed", "checkpoint", "sqrt")
    found, wanted = (
        trained(row, mark, jitted=jitted) for mark in (MARKS[column], unmarked)
    )
    assert_same(found, wanted)


def test_a_marked_layer_keeps_the_layer_s_attributes() -> None:
    layer = rj.Checkpointed(Counting(nnx.Rngs(0)))
    assert layer.calls[...] == 0
    layer.calls[...] = 3
    assert layer.calls[...] == 3
    assert rj.Checkpointed(jnp.sin).__name__ == "sin"


# Linen ------------------------------------------------------------------------------


class Heavy(linen.Module):
    """More to store than its arguments; statistics, a mask, and a static argument."""

    @linen.compact
    def __call__(self, x: Any, times: int = 4) -> Any:
        h = x
        for _ in range(times):
            h = jnp.tanh(jnp.cumsum(jnp.sin(h), 1))
        h = linen.Dropout(0.5, deterministic=times == 4)(linen.Dense(16)(h))
        return x + linen.BatchNorm(use_running_average=False)(h)


class InSetup(linen.Module):
    mark: Any
    field: Any
    times: int

    def setup(self) -> None:
        self.first = self.mark(Heavy())
        self.rest = [self.mark(Heavy()) for _ in range(2)]
        self.named = self.mark(Heavy(name="by_hand"))

    def __call__(self, x: Any) -> Any:
        for layer in (self.first, *self.rest, self.named, self.field):
            x = layer(x, self.times)
        return (x**2).mean()


class Compact(linen.Module):
    mark: Any
    field: Any
    times: int

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(3):
            x = self.mark(Heavy())(x, times=self.times)
        return (self.field(x) ** 2).mean()


@pytest.mark.slow("4-InSetup", "3-Compact", "3-InSetup")
@pytest.mark.parametrize("parent", [InSetup, Compact])
@pytest.mark.parametrize("times", [3, 4])
def test_linen_modules_inside_linen_modules_save_memory(
    parent: Any, times: int
) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(256, 16)), jnp.float32)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}

    def asked(mark: Any) -> tuple[Any, Any, int]:
        model = parent(mark, mark(Heavy()), times)
        variables = jax.jit(model.init)(keys, x)

        def loss(params: Any) -> Any:
            given = {**variables, "params": params}
            return model.apply(given, x, mutable=["batch_stats"], rngs=keys)

        slope = jax.jit(jax.grad(loss, has_aux=True)).lower(variables["params"])
        program = slope.compile()
        found = program(variables["params"])
        return variables, found, program.memory_analysis().temp_size_in_bytes

    want, slope, most = asked(lambda m: m)
    got, same, less = asked(lambda m: rj.Checkpointed(m, static_argnames="times"))
    assert_same((got, same), (want, slope))
    assert less < most / 2


def test_an_unbound_linen_module_is_flax_s_own_error() -> None:
    with pytest.raises(Exception, match="unbound module"):
        rj.Checkpointed(Heavy())(jnp.ones((2, 16)))


def test_an_equinox_module_stays_a_pytree_with_its_parameters() -> None:
    plain = eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))
    layer = rj.Checkpointed(plain)
    assert layer.depth == copy.copy(layer).depth == 2
    slope = eqx.filter_jit(
        eqx.filter_grad(lambda model: (model(jnp.ones(3)) ** 2).sum())
    )
    of_layer, of_plain = (
        jax.tree.leaves(eqx.filter(slope(m), eqx.is_array)) for m in (layer, plain)
    )
    assert_same(of_layer, of_plain)
    assert isinstance(jax.tree.map(lambda v: v, layer), rj.Checkpointed)
