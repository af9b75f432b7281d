"""Programs written once and run in two ways.

A program takes its loops and branches from a namespace: `jax.lax`, or `Unrolled`, in
which they are Python's own. The unrolled form is straight-line code to JAX, so that
plain `jax.grad` differentiates it: an oracle that shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Unrolled:
    """`jax.lax`'s control flow by Python's own, for concrete values."""

    @staticmethod
    def while_loop(test: Callable[..., Any], body: Callable[..., Any], carry: Any):
        while bool(test(carry)):
            carry = body(carry)
        return carry

    @staticmethod
    def fori_loop(low: int, high: int, body: Callable[..., Any], carry: Any):
        for i in range(int(low), int(high)):
            carry = body(i, carry)
        return carry

    @staticmethod
    def cond(index: Any, yes: Any, no: Any, *args: Any):
        return yes(*args) if bool(index) else no(*args)

    @staticmethod
    def switch(index: Any, branches: Sequence[Any], *args: Any):
        return branches[min(max(int(index), 0), len(branches) - 1)](*args)

    @staticmethod
    def scan(
        body: Callable[..., Any],
        carry: Any,
        xs: Any = None,
        length: int | None = None,
        reverse: bool = False,
    ):
        leaves = jax.tree.leaves(xs)
        n = leaves[0].shape[0] if leaves else length
        assert n is not None
        rows = [jax.tree.map(lambda x, i=i: x[i], xs) for i in range(n)]
        found = []
        for row in reversed(rows) if reverse else rows:
            carry, y = body(carry, row)
            found.append(y)
        if not found:
            return carry, Unrolled._no_rows(body, carry, xs)
        found = found[::-1] if reverse else found
        return carry, jax.tree.map(lambda *ys: jnp.stack(ys), *found)

    @staticmethod
    def _no_rows(body: Callable[..., Any], carry: Any, xs: Any):
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
        _, ys = jax.eval_shape(body, carry, row)
        return jax.tree.map(lambda y: jnp.zeros((0, *y.shape), y.dtype), ys)


@dataclass(frozen=True, slots=True)
class Form:
    """A program `run(loops, *args)` and a point at which to differentiate it."""

    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    unrolls: bool = True

    def arguments(self) -> tuple[Any, ...]:
        return tuple(
            jnp.asarray(a, np.float64) if not isinstance(a, int) else a
            for a in self.args
        )

    def with_loops(self, loops: Any) -> Callable[..., Any]:
        return lambda *args: self.run(loops, *args)


def forward_gradient(fun: Callable[..., Any], *args: Any, argnums: Any = 0) -> Any:
    """The gradient by forward mode, compiled whole."""
    return jax.jit(jax.jacfwd(fun, argnums))(*args)


def finite_difference(fun: Callable[..., Any], point: Any, h: float = 1e-6) -> Any:
    """Central differences, one component at a time."""
    run = jax.jit(fun)
    flat, shape = np.asarray(point).ravel(), np.shape(point)
    found = np.zeros(flat.size)
    for i in range(flat.size):
        step = np.zeros(flat.size)
        step[i] = h
        above = run(jnp.asarray((flat + step).reshape(shape)))
        below = run(jnp.asarray((flat - step).reshape(shape)))
        found[i] = (above - below) / (2 * h)
    return found.reshape(shape)


def assert_close(got: Any, want: Any, tolerance: float = 1e-9) -> None:
    """Trees of equal structure, shapes and (within a tolerance) values."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.shape(g) == np.shape(w)
        wide = np.complex128 if np.iscomplexobj(w) else np.float64
        np.testing.assert_allclose(
            np.asarray(g, wide), np.asarray(w, wide), rtol=tolerance, atol=tolerance
        )
