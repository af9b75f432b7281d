"""Programs on eight virtual devices: run by `test_shard_map.py`, alone in a process.

Prints one JSON object: for each case the greatest difference from what JAX gives for
the same function with a counted loop, relative to the greatest entry. Cases whose names
are arguments are left out.
"""

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding

import retape
import retape.jax
from tests.engines.jaxpr.support.eight_devices import (
    KINDS,
    SPLIT,
    WHOLE,
    Function,
    difference,
    mesh_of,
)

PLAN = retape.fixed_space(snapshots=3, stage=2)
STEPS = 11


def alone(x: Any) -> Any:
    return jnp.sin(x) * 1.1


def together(x: Any) -> Any:
    """A step in which the devices speak to one another."""
    return jnp.sin(x) * 1.1 + lax.psum(jnp.sum(jnp.cos(x)), "d") / x.size / 16


def counted(step: Function) -> Function:
    return lambda x: jnp.sum(lax.fori_loop(0, STEPS, lambda i, v: step(v), x) ** 2)


def unknown(step: Function) -> Function:
    def run(x: Any) -> Any:
        turn = lambda c: (c[0] + 1, step(c[1]))  # noqa: E731
        return jnp.sum(lax.while_loop(going, turn, (0, x))[1] ** 2)

    return run


def going(c: Any) -> Any:
    """A test whose trip count cannot be proved: eleven."""
    return (c[0] < STEPS) & (jnp.max(c[1]) < 50.0)


def cases(mesh: Any) -> dict[str, tuple[Function, Function]]:
    """For each case the function asked about, and one that JAX can do."""

    def each(f: Function, out: Any = WHOLE) -> Function:
        return jax.shard_map(f, mesh=mesh, in_specs=SPLIT, out_specs=out)

    def total(f: Function) -> Function:
        return each(lambda x: lax.psum(f(x), "d"))

    def ours(f: Function) -> Function:
        return retape.jax.grad(f, plan=PLAN)

    def under(f: Function) -> Function:
        return retape.jax.checkpointed(f, plan=PLAN)

    def spread_body(x: Any) -> Any:
        return each(alone, SPLIT)(x)

    plain = jax.grad(counted(alone))
    talk = jax.grad(total(counted(together)))
    return {
        "sharded arguments": (ours(unknown(alone)), plain),
        "checkpointed inside": (jax.grad(total(under(unknown(alone)))), plain),
        "gradient inside": (each(ours(unknown(alone)), SPLIT), plain),
        "gradient outside": (ours(total(unknown(alone))), plain),
        "a loop around": (ours(unknown(spread_body)), plain),
        "talking, checkpointed inside": (
            jax.grad(total(under(unknown(together)))),
            talk,
        ),
        "talking, gradient outside": (ours(total(unknown(together))), talk),
    }


def wherever(mesh: Any) -> float:
    """One gradient of arguments on one device, spread over all, and on another one."""
    x, f = jnp.linspace(0.1, 3.0, 64), unknown(alone)
    gradient = retape.jax.grad(f, plan=PLAN)
    want = jax.device_get(gradient(x))
    worst = 0.0
    for place in (NamedSharding(mesh, SPLIT), jax.devices()[3], jax.devices()[0]):
        there = jax.device_put(x, place)
        for _ in range(2):
            got = gradient(there)
            assert got.sharding == there.sharding, (place, got.sharding)
            worst = max(worst, difference(jax.device_get(got), want))
    return worst


def temporary_bytes(f: Function, x: Any) -> int:
    analysis = jax.jit(f).lower(x).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def main() -> None:
    found: dict[str, float] = {}
    for kind in KINDS:
        mesh = mesh_of(kind)
        x = jnp.linspace(0.1, 3.0, 64)
        there = jax.device_put(x, NamedSharding(mesh, SPLIT))
        with jax.set_mesh(mesh):
            for name, (f, reference) in cases(mesh).items():
                left_out = kind == AxisType.Explicit and name not in EXPLICIT
                if left_out or name in sys.argv[1:]:
                    continue
                got, want = jax.jit(f)(there), jax.jit(reference)(there)
                assert got.sharding.spec == SPLIT, (name, got.sharding)
                got, want = jax.device_get(got), jax.device_get(want)
                found[f"{name} ({kind.name})"] = difference(got, want)
    found["one gradient, its argument anywhere (Auto)"] = wherever(mesh)
    big = jnp.zeros(2**16)
    there = jax.device_put(big, NamedSharding(mesh, SPLIT))
    f = retape.jax.grad(unknown(alone), plan=PLAN)
    found["bytes on one device"] = temporary_bytes(f, big)
    found["bytes on each of eight"] = temporary_bytes(f, there)
    found["explained"] = str(retape.jax.explain(unknown(alone), there, plan=PLAN))
    json.dump(found, sys.stdout)


EXPLICIT = {"sharded arguments", "talking, checkpointed inside"}

if __name__ == "__main__":
    main()
