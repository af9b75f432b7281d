"""Gradients over several devices are those of one device.

The rows are places of a mark in a program that `shard_map` divides, or that is divided
by its arguments; all run in one process of two devices.
"""

from __future__ import annotations

import pytest

from tests.judges.jax.judging import told_on_devices

PROGRAM = """
import json
import jax, jax.numpy as jnp, numpy as np, retape, retape.jax as rj
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from retape.jax import policies

PLAN = retape.fixed_space(snapshots=2, stage=1)
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))


def body(x, w):
    step = lambda i, c: jnp.tanh(c @ w)
    return lax.fori_loop(0, 5, step, x)


def ended(x, w):
    going = lambda s: (s[0] < 5) & (jnp.max(abs(s[1])) < 1e3)
    step = lambda s: (s[0] + 1, jnp.tanh(s[1] @ w))
    return lax.while_loop(going, step, (0, x))[1]


MARKS = {
    "checkpoint": rj.checkpoint,
    "sqrt": lambda f: rj.checkpoint(f, policy=policies.sqrt()),
    "selective": lambda f: rj.checkpoint(f, policy=policies.selective()),
    "checkpointed": lambda f: rj.checkpointed(f, plan=PLAN),
    "Checkpointed": rj.Checkpointed,
}


def inside(mark, f):
    def each(x, w):
        return lax.psum(jnp.sum(mark(f)(x, w) ** 2), "d")
    return jax.shard_map(each, mesh=mesh, in_specs=(P("d"), P()), out_specs=P())


def outside(mark, f):
    def each(x, w):
        return lax.psum(jnp.sum(f(x, w) ** 2), "d")
    return mark(jax.shard_map(each, mesh=mesh, in_specs=(P("d"), P()), out_specs=P()))


def by_arguments(mark, f):
    return lambda x, w: jnp.sum(mark(f)(x, w) ** 2)


rng = np.random.default_rng(0)
x, w = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((4, 8), (8, 8)))
w = w / 3
want = jax.grad(lambda x, w: jnp.sum(body(x, w) ** 2), (0, 1))(x, w)
rows = jax.device_put(x, NamedSharding(mesh, P("d")))
every = jax.device_put(w, NamedSharding(mesh, P()))
wrong, asked = [], 0
for where in (inside, outside, by_arguments):
    for name, mark in MARKS.items():
        for f in (body, ended) if name == "checkpointed" else (body,):
            asked += 1
            try:
                got = jax.jit(jax.grad(where(mark, f), (0, 1)))(rows, every)
                for a, b in zip(got, want):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            except Exception as error:
                wrong.append([where.__name__, name, f.__name__, str(error)[:200]])
print(json.dumps({"asked": asked, "wrong": wrong}))
"""


@pytest.mark.slow
def test_gradients_over_devices_are_those_of_one() -> None:
    assert told_on_devices(2, PROGRAM) == {"asked": 18, "wrong": []}
