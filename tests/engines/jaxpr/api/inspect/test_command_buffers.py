"""What keeps a loop out of a CUDA graph, by name and line."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.jax


def filtered(x: Any) -> Any:
    def step(s: Any) -> Any:
        return s[0] + 1, jnp.fft.irfft(0.9 * jnp.fft.rfft(s[1]), 8)

    return jnp.sum(lax.while_loop(lambda s: s[0] < jnp.max(s[1]), step, (0, x))[1])


def test_a_library_call_is_named_with_its_line() -> None:
    found = retape.jax.graph_blockers(filtered, jnp.ones(8))
    assert {(b.operation, b.inside) for b in found} == {("fft", "while")}
    assert all("test_command_buffers.py" in b.line for b in found)
    assert all(b.line.endswith("(filtered.<locals>.step)") for b in found)


def test_so_it_is_in_a_gradient() -> None:
    gradient = retape.jax.grad(
        filtered, plan=retape.fixed_space(snapshots=2), loops="host"
    )
    found = retape.jax.graph_blockers(gradient, jnp.ones(8))
    assert {(b.operation, b.inside) for b in found} == {("fft", "while")}


def test_what_makes_nobody_wait_is_none() -> None:
    """Before a loop, and in one of known trip count."""

    def run(x: Any) -> Any:
        turn = lambda c, _: (jnp.linalg.cholesky(c + 2 * jnp.eye(3)), None)  # noqa: E731
        return lax.scan(turn, jnp.fft.fft(x).real, None, length=3)[0]

    assert retape.jax.graph_blockers(run, jnp.eye(3)) == ()


def test_callbacks_in_a_branch_of_a_call() -> None:
    @jax.jit
    def told(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x)
        return x

    def run(x: Any) -> Any:
        return lax.cond(x > 0, told, lambda v: v, x)

    (found,) = retape.jax.graph_blockers(run, 1.0)
    assert (found.operation, found.inside) == ("debug_callback", "cond")


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(retape.GradientTypeError):
        retape.jax.graph_blockers(3)  # pyright: ignore[reportArgumentType]


def test_a_lowering_for_cuda_has_no_conditional_of_a_cheap_branch() -> None:
    def run(x: Any) -> Any:
        # An array too large for the one kernel in which a CPU has choices, too.
        turn = lambda _, v: lax.cond(v[0] > 0, jnp.sin, lambda v: v * v, v)  # noqa: E731
        return lax.fori_loop(0, 90, turn, x).sum()

    gradient = jax.jit(
        retape.jax.grad(run, plan=retape.fixed_space(snapshots=2, stage=9))
    )
    cpu, cuda = (
        jax.export.export(gradient, platforms=[p])(jnp.ones(5000)).mlir_module()
        for p in ("cpu", "cuda")
    )
    assert "stablehlo.case" in cpu and "stablehlo.case" not in cuda
