"""Programs with custom rules, inside `jax.jit`: they are not traced to be told."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax import lax

import retape
import retape.jax
from retape.engines.jaxpr.jaxprs import _structural_equality

PLAN = retape.fixed_space(snapshots=3)


def run(x: Any) -> Any:
    return lax.while_loop(lambda v: v < 9.0, lambda v: 1.5 * jax.nn.relu(v), x)


@pytest.mark.slow
def test_inside_jit_rules_are_not_traced_to_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is traced once in all need not be found again; it is right all the same."""
    traced: list[Any] = []
    told = _structural_equality.rule_traces
    monkeypatch.setattr(
        _structural_equality, "rule_traces", lambda j: traced.append(j) or told(j)
    )
    gradient = retape.jax.grad(run, plan=PLAN)
    kept = jax.grad(retape.jax.checkpointed(run, plan=PLAN))
    assert jax.jit(gradient)(4.0) == jax.jit(kept)(4.0) == 1.5**2
    assert not traced
    assert gradient(4.0) == kept(4.0) == 1.5**2
    assert traced
