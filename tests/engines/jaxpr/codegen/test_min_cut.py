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

from tests.engines.jaxpr.support.seams import choose_residuals, operations

INPUTS = 3
CHEAP = {"add", "mul", "slice"}
"""Operations that XLA fuses into what reads them: their results are not taped."""


OPERATIONS: dict[str, Any] = {
    "add": lambda x, y, narrow: lax.add(x[:narrow], y[:narrow]),
    "mul": lambda x, y, narrow: lax.mul(x[:narrow], y[:narrow]),
    "sin": lambda x, y, narrow: lax.sin(x),
    "slice": lambda x, y, narrow: x[: max(1, x.shape[0] // 2)],
    "exp": lambda x, y, narrow: lax.exp(y),
}


def program(seed: int) -> core.ClosedJaxpr:
    """Cheap and dear operations on arrays of several sizes, some of them returned."""
    draw = random.Random(seed)

    def run(*values: Any) -> list[Any]:
        made, done = list(values), set()
        for _ in range(draw.randint(3, 6)):
            x, y = draw.choices(made, k=2)
            kind = draw.choice(list(OPERATIONS))
            if (kind, id(x), id(y)) in done:
                continue  # equal work is done once
            done.add((kind, id(x), id(y)))
            made.append(OPERATIONS[kind](x, y, min(x.shape[0], y.shape[0])))
        return draw.choices(made[INPUTS:], k=2)

    return jax.make_jaxpr(run)(*(jnp.ones(n) for n in (8, 24, 64)))


def numbered(jaxpr: core.Jaxpr) -> tuple[list[tuple[str, Any, list[int]]], list[int]]:
    """Operations and outputs by the numbers of values; equal values have one."""
    same: dict[Any, int] = {v: i for i, v in enumerate(jaxpr.invars)}
    known: dict[Any, int] = {}
    made: list[tuple[str, Any, list[int]]] = []
    for eqn in jaxpr.eqns:
        ins = [same[v] for v in eqn.invars if isinstance(v, core.Var)]
        (out,) = eqn.outvars
        key = eqn.primitive.name, str(eqn.params), tuple(ins)
        if key not in known:
            known[key] = INPUTS + len(known)
            made.append((eqn.primitive.name, out.aval, ins))
        same[out] = known[key]
    return made, [same[v] for v in jaxpr.outvars]


def cost(aval: Any) -> int:
    """Bytes, and those of a row's bookkeeping."""
    return aval.size * aval.dtype.itemsize + 16


def least_tape(jaxpr: core.Jaxpr, lasting: tuple[int, ...]) -> int:
    """The least cost of values from which the outputs follow by cheap operations."""
    made, wanted = numbered(jaxpr)
    costs = [cost(v.aval) for v in jaxpr.invars] + [cost(aval) for _, aval, _ in made]

    def follow(some: tuple[int, ...]) -> bool:
        known = {*lasting, *some}
        for number, (name, _, ins) in enumerate(made, INPUTS):
            if name in CHEAP and known.issuperset(ins):
                known.add(number)
        return known.issuperset(wanted)

    values = [i for i in range(len(costs)) if i not in lasting]
    sets = [s for n in range(2 + INPUTS + 1) for s in combinations(values, n)]
    return min(sum(costs[i] for i in some) for some in sets if follow(some))


@pytest.mark.parametrize("lasting", [(), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_no_smaller_tape_would_do(seed: int, lasting: tuple[int, ...]) -> None:
    whole = program(seed)
    found = choose_residuals(whole, 0, set(lasting))
    taped = sum(map(cost, found.taped.out_avals))
    assert taped == least_tape(whole.jaxpr, lasting)


def test_a_tape_of_all_residuals_would_be_seen() -> None:
    """The least is less than taping what is asked for as it is."""
    every = [program(seed) for seed in range(12)]
    whole = [sum({v: cost(v.aval) for v in p.jaxpr.outvars}.values()) for p in every]
    least = [least_tape(p.jaxpr, (1,)) for p in every]
    assert all(a >= b for a, b in zip(whole, least, strict=True)) and whole != least


X, Y = np.float32([0.3, 0.7, 0.1]), np.float32([1.0, -2.0, 0.5])
TABLE = np.linspace(1.0, 2.0, 3, dtype=np.float32)


def several(x: Any, y: Any) -> Any:
    """Equal work, operations of two results, a constant and a literal."""
    a = jnp.sin(x) * TABLE
    b, c = lax.top_k(a + y, 2)
    d = a * jnp.sin(x)
    return b[0] + d[0], c, d, 2.0


def either_sign(x: Any, y: Any) -> Any:
    return 1.0 / (x * 0.0), y / (x * -0.0)


def dropped(x: Any, y: Any) -> Any:
    """A result is dropped where it is made first, and wanted of equal work."""
    return lax.top_k(x, 1)[0] * y, *lax.top_k(x, 1)


SPECIAL = [jax.make_jaxpr(f)(X, Y) for f in (several, either_sign, dropped)]


@pytest.mark.parametrize("whole", [*map(program, range(6)), *SPECIAL])
def test_residuals_come_back_from_the_tape(whole: core.ClosedJaxpr) -> None:
    found = choose_residuals(whole, 0, {1})
    values = [np.linspace(0.1, 0.9, v.size, dtype=v.dtype) for v in whole.in_avals]
    taped = core.jaxpr_as_fun(found.taped)(*values)
    again = [values[i] for i in found.sources]
    restored = core.jaxpr_as_fun(found.restore)(*taped, *again)
    for got, want in zip(restored, core.jaxpr_as_fun(whole)(*values), strict=True):
        np.testing.assert_array_equal(got, want)


def test_equal_work_is_done_once() -> None:
    whole = SPECIAL[0]
    assert operations(whole).count("sin") == 2
    found = choose_residuals(whole, len(whole.out_avals), set())
    assert operations(found.taped).count("sin") == 1
