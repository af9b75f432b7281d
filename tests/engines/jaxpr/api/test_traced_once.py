"""Programs with custom rules, inside `jax.jit`: they are not traced to be told."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax import lax

import retape
import retape.jax

PLAN = retape.fixed_space(snapshots=3)


@pytest.mark.slow
def test_inside_jit_rules_are_not_traced_to_be_told() -> None:
    """What is traced once in all need not be found again; it is right all the same."""
    traced: list[Any] = []

    @jax.custom_jvp
    def ruled(x: Any) -> Any:
        return 1.5 * x

    @ruled.defjvp
    def _(point: Any, way: Any) -> Any:
        traced.append(point)
        return ruled(*point), 1.5 * way[0]

    def run(x: Any) -> Any:
        return lax.while_loop(lambda v: v < 9.0, lambda v: ruled(v), x)

    def calls(gradient: Any) -> int:
        retape.jax.clear_caches()
        traced.clear()
        assert gradient(4.0) == 1.5**2
        return len(traced)

    def kept(x: Any) -> Any:
        return jax.grad(retape.jax.checkpointed(run, plan=PLAN))(x)

    for gradient in (retape.jax.grad(run, plan=PLAN), kept):
        assert calls(jax.jit(gradient)) < calls(gradient)
