"""A budget of a marked function where its arguments are spread over devices.

The rows are meshes, the columns ways to run. On automatic axes a marked function is cut
before it is known where its arguments are, and the user is told so.
"""

from __future__ import annotations

import pytest

from tests.judges.jax.judging import told_on_devices

PROGRAM = """
import json, warnings
import jax, jax.numpy as jnp, retape, retape.jax
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def loss(x, ws):
    for i in range(4):
        x = jnp.tanh(x @ ws[i])
    return jnp.sum(x)


def told(run):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return any("explicit axes" in str(w.message) for w in seen)


def lowered(x, ws, budget="100 kB"):
    marked = retape.jax.checkpoint(loss, policy=retape.within(budget))
    return jax.jit(jax.grad(marked, (0, 1))).lower(x, ws)


x, ws = jnp.ones((32, 16)), jnp.ones((4, 16, 16))
rows = jax.device_put(x, NamedSharding(mesh, P("d")))
every = jax.device_put(ws, NamedSharding(mesh, P()))
parts = jax.device_put(ws, NamedSharding(mesh, P(None, "d")))
eager = jax.grad(retape.jax.checkpoint(loss, policy=retape.within("100 kB")))
try:
    refused = ""
    lowered(rows, every, 10)
except retape.BudgetError as error:
    refused = str(error)
print(json.dumps({
    "one device": told(lambda: lowered(x, ws)),
    "data parallel": told(lambda: lowered(rows, every)),
    "weights in parts": told(lambda: lowered(rows, parts)),
    "at once": told(lambda: eager(rows, every)),
    "refused": "explicit axes" in refused,
}))
"""


@pytest.mark.slow
def test_a_budget_on_automatic_axes_is_told_of() -> None:
    assert told_on_devices(4, PROGRAM) == {
        "one device": False,
        "data parallel": True,
        "weights in parts": True,
        "at once": True,
        "refused": True,
    }
