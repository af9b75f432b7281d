"""Hints on programs on several devices, which are run in a process of their own."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import os

from tests.hints.processes import alone
from tests.hints.rows import Row

PRELUDE = """
import functools, tempfile, warnings
from contextlib import closing
import jax, jax.numpy as jnp, retape, retape.jax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
warnings.simplefilter("error", retape.RetapeWarning)
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
x = jnp.linspace(0.6, 2.0, 8)
rows = jax.device_put(x, NamedSharding(mesh, P("d")))

def f(x):
    for _ in range(4):
        x = jnp.tanh(jnp.outer(x, x) @ x)
    return jnp.sum(x)

def own_length(x):
    return lax.while_loop(lambda v: jnp.max(v) > 0.5, lambda v: 0.9 * v, x)

def talking(x):
    return jnp.sum(own_length(1.2 * x - 0.1 * lax.pmean(x, "d")) ** 2)

def each(g):
    return jax.jit(jax.shard_map(g, mesh=mesh, in_specs=P("d"), out_specs=P("d")))

def total(g):
    return lambda x: lax.psum(g(x), "d")

PLACE = retape.storage.Place(0, 0, "disk")

def kept(kind, x, again=None):
    with tempfile.TemporaryDirectory() as path, closing(kind(path)) as store:
        store.open("a run")
        store.put(PLACE, x, x.nbytes)
        if again is None:
            return store.get(PLACE)
        store.close()
        with closing(again(path)) as store:
            store.open("a run")
            return store.get(PLACE)

def tell(call):
    try:
        print(call())
    except (retape.RetapeError, retape.RetapeWarning) as error:
        print(error)

"""


def on_two_devices(expression: str) -> str:
    """What an expression gives there, or is told."""
    devices = "--xla_force_host_platform_device_count=2"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {devices}"
    return alone(f"{PRELUDE}tell(lambda: {expression})", XLA_FLAGS=flags)


def row(says: str, wrong: str, right: str, expected: str, written: str = "") -> Row:
    right = f"bool(jnp.allclose({right}, {expected}, 1e-5, 1e-5))"
    return Row(
        says,
        f"on_two_devices({wrong!r})",
        f"on_two_devices({right!r})",
        "'True'",
        written=written,
        slow=True,
    )


ROWS = [
    row(
        "Use a `retape.storage.ZarrStore`",
        "kept(retape.DiskStore, rows)",
        "kept(retape.storage.ZarrStore, rows)",
        "x",
    ),
    row(
        "Pass `mesh=`",
        "kept(retape.storage.ZarrStore, rows, retape.storage.ZarrStore)",
        "kept(retape.storage.ZarrStore, rows, functools.partial("
        "retape.storage.ZarrStore, mesh=mesh))",
        "x",
    ),
    row(
        "Use a mesh with explicit axes, or "
        "`retape.jax.grad(f, plan=retape.within({}))`",
        "jax.grad(retape.jax.checkpoint(f, policy=retape.within('100 kB')))(rows)",
        "THE_CODE(rows)",
        "jax.grad(f)(x)",
    ),
    row(
        "pass `retape.fixed_space`",
        "each(retape.jax.grad(total(talking), plan=retape.within('1 MB')))(x)",
        "each(retape.jax.grad(total(lambda x: jnp.sum(own_length(x) ** 2)), "
        "plan=retape.fixed_space(snapshots=3)))(x)",
        "jnp.concatenate([jax.jacfwd(lambda x: jnp.sum(own_length(x) ** 2))(part) "
        "for part in (x[:4], x[4:])])",
    ),
]
