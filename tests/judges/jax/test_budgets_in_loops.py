"""Budgets of marked functions, whose layers are a `lax.scan` or stand in a row.

The compiler is the oracle of bytes and of work, `jax.grad` that of numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import pytest

import retape
import retape.jax as rj
from tests.engines.jaxpr.support.networks import assert_near, compiled, temp_bytes
from tests.judges.jax.layered import IN_LOOPS, NETWORKS, WS

pytestmark = pytest.mark.usefixtures("double_precision")


def held(f: Any, budget: int) -> Any:
    return rj.checkpoint(f, policy=retape.within(budget))


def least_of(f: Any, args: Any) -> int:
    """The least budget, as the refusal of a smaller one names it."""
    with pytest.raises(retape.BudgetError, match="least budget that would do") as told:
        jax.grad(held(f, 1))(*args)
    assert told.value.least is not None
    return told.value.least


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_budget_holds_and_costs_less_the_larger_it_is(name: str) -> None:
    f, make = NETWORKS[name]
    args = make()
    least, most = least_of(f, args), temp_bytes(f, *args)
    looped = f in IN_LOOPS
    assert least < (0.33 if looped else 0.85) * most
    budgets = [most // 3, most // 2] if looped else [least, (least + most) // 2, most]
    work: list[float] = []
    for budget in budgets:
        assert temp_bytes(held(f, budget), *args) <= budget
        program = compiled(jax.value_and_grad(held(f, budget)), *args)
        assert program.memory_analysis().temp_size_in_bytes <= budget
        work.append(program.cost_analysis()["flops"])
        assert_near(program(*args), jax.value_and_grad(f)(*args), 1e-9)
    assert work == sorted(work, reverse=True)
    if not looped:
        # Nothing is run again that need not be, but for what ties the value.
        stored = compiled(jax.value_and_grad(f), *args).cost_analysis()["flops"]
        assert work[-1] <= 1.05 * stored < work[0]
    # One byte less than the least is refused: the number named is exact.
    with pytest.raises(retape.BudgetError, match=f"would do is {least} bytes"):
        jax.grad(held(f, least - 1))(*args)


def test_what_is_named_as_the_least_is_kept() -> None:
    f = NETWORKS["scanned_layers"][0]
    least = least_of(f, (WS,))
    assert least < temp_bytes(f, WS) // 3
    assert temp_bytes(held(f, least), WS) <= least
