"""What a call changes in a module is changed once, whatever marks the call.

The rows are Retape's marks, the columns the forms of a call of an NNX module with a
running mean and a dropout. The oracle is the call without a mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape.jax as rj

nnx = pytest.importorskip("flax.nnx")
linen = pytest.importorskip("flax.linen")

X = jnp.sin(jnp.arange(6.0)).reshape(2, 3)


class _Net(nnx.Module):
    def __init__(self) -> None:
        self.inner = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
        self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(1))

    def __call__(self, x: Any) -> Any:
        return jnp.tanh(self.drop(self.norm(self.inner(x))))

    def method(self, x: Any) -> Any:
        return self(x)


MARKS: dict[str, Callable[..., Any]] = {
    "checkpoint": rj.checkpoint,
    "without a barrier": lambda f: rj.checkpoint(f, prevent_cse=False),
    "sqrt": lambda f: rj.checkpoint(f, policy=rj.policies.sqrt()),
    "checkpointed": rj.checkpointed,
    "Checkpointed": rj.Checkpointed,
}

CALLS: dict[str, Callable[..., Any]] = {
    "an argument": lambda mark, net: mark(lambda n, x: n(x))(net, X),
    "by name": lambda mark, net: mark(lambda x, n: n(x))(X, n=net),
    "a method": lambda mark, net: mark(net.method)(X),
    "the module": lambda mark, net: mark(net)(X),
}


def _trained(mark: Callable[..., Any], call: Callable[..., Any]) -> list[Any]:
    net = _Net()
    loss = lambda n: jnp.sum(call(mark, n) ** 2)  # noqa: E731
    gradient = nnx.grad(loss)(net)
    second = call(mark, net)
    state = [net.norm.mean[...], net.norm.var[...], net.drop.rngs.count[...]]
    return [*jax.tree.leaves(gradient), second, *state]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "column"),
    [
        pytest.param(
            row, column, marks=() if column == "an argument" else pytest.mark.slow
        )
        for row in MARKS
        for column in CALLS
    ],
)
def test_state_changes_once(row: str, column: str) -> None:
    call = CALLS[column]
    found, wanted = _trained(MARKS[row], call), _trained(lambda f: f, call)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-6)


class _Block(linen.Module):
    @linen.compact
    def __call__(self, x: Any, train: bool = True) -> Any:
        x = linen.Dropout(0.5, deterministic=not train)(linen.Dense(3)(x))
        return x * (2.0 if train else 1.0)


class _Stack(linen.Module):
    mark: Any
    train: bool

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for i in range(2):
            x = self.mark(_Block(name=f"b{i}"))(x, self.train)
        return x


@pytest.mark.slow("True")
@pytest.mark.parametrize("train", [True, False])
def test_a_flag_leaves_weights_as_they_are(train: bool) -> None:
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    found, wanted = (
        _Stack(mark, train).init_with_output(keys, X)
        for mark in (rj.Checkpointed, lambda m: m)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.allclose(a, b, rtol=1e-5)
