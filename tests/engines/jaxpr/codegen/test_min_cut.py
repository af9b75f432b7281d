"""The tape's minimum cut, against trying all sets of values."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.codegen._min_cut import (
    _minimum_cut,
    _tape_cost,
    choose_residuals,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Again, traits
from retape.engines.jaxpr.jaxprs._subprogram import variables

INPUTS = 3


def program(seed: int) -> core.ClosedJaxpr:
    """Cheap and dear operations on arrays of several sizes, some of them returned."""
    draw = random.Random(seed)

    def run(*values: Any) -> list[Any]:
        made = list(values)
        for _ in range(draw.randint(3, 6)):
            x, y = draw.choices(made, k=2)
            narrow = min(x.shape[0], y.shape[0])
            match draw.choice(["add", "mul", "sin", "slice", "exp"]):
                case "add":
                    made.append(lax.add(x[:narrow], y[:narrow]))
                case "mul":
                    made.append(lax.mul(x[:narrow], y[:narrow]))
                case "slice":
                    made.append(x[: max(1, x.shape[0] // 2)])
                case "sin":
                    made.append(lax.sin(x))
                case _:
                    made.append(lax.exp(y))
        return draw.choices(made[INPUTS:], k=2)

    return jax.make_jaxpr(run)(*(jnp.ones(n) for n in (8, 24, 64)))


def follow(jaxpr: core.Jaxpr, known: set[Any], wanted: set[Any]) -> bool:
    """Whether values follow from those known by cheap operations alone."""
    known = set(known)
    for eqn in jaxpr.eqns:
        if traits(eqn).again >= Again.FUSED and known.issuperset(variables(eqn.invars)):
            known.update(eqn.outvars)
    return wanted <= known


@pytest.mark.parametrize("lasting", [(), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_no_smaller_tape_would_do(seed: int, lasting: tuple[int, ...]) -> None:
    inner = program(seed).jaxpr
    free = {inner.invars[i] for i in lasting}
    wanted = variables(inner.outvars)
    chosen = _minimum_cut(inner, wanted, free)
    assert follow(inner, free | chosen, set(wanted))
    made = [v for e in inner.eqns for v in e.outvars]
    values = [v for v in (*inner.invars, *made) if v not in free]
    least = min(
        sum(map(_tape_cost, some))
        for n in range(len(wanted) + INPUTS + 1)
        for some in combinations(values, n)
        if follow(inner, {*free, *some}, set(wanted))
    )
    assert sum(map(_tape_cost, chosen)) == least


@pytest.mark.parametrize("seed", range(6))
def test_residuals_come_back_from_the_tape(seed: int) -> None:
    whole = program(seed)
    found = choose_residuals(whole, 0, {1})
    values = [np.linspace(0.1, 0.9, v.shape[0]) for v in whole.in_avals]
    taped = core.jaxpr_as_fun(found.taped)(*values)
    again = [values[i] for i in found.sources]
    restored = core.jaxpr_as_fun(found.restore)(*taped, *again)
    for got, want in zip(restored, core.jaxpr_as_fun(whole)(*values), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_tape_of_all_residuals_would_be_seen() -> None:
    """The least is less than taping what is asked for as it is."""
    saved = 0
    for seed in range(12):
        inner = program(seed).jaxpr
        wanted = set(variables(inner.outvars))
        chosen = _minimum_cut(inner, list(wanted), {inner.invars[1]})
        saved += sum(map(_tape_cost, wanted)) - sum(map(_tape_cost, chosen))
    assert saved > 0
