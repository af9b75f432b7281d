"""Loops that eight devices leave at their own time, among collectives.

Run by `test_shard_map.py`, in a process that is given up if it waits. Prints one JSON
object: for each case the greatest difference from plain JAX on all devices' numbers at
once, relative to the greatest entry, and the text of each refusal. Cases whose names
are arguments are left out.
"""

import json
import sys
from collections.abc import Iterator
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

PLAN = retape.fixed_space(snapshots=2, stage=1)


def shrink(v: Any) -> Any:
    """As many steps as this device's numbers need, some twenty at most."""
    return lax.while_loop(
        lambda v: jnp.max(v) > 0.5, lambda v: 0.9 * v - 0.1 * v * v, v
    )


def shrink_bounded(v: Any) -> Any:
    def step(v: Any, _: Any) -> Any:
        return jnp.where(jnp.max(v) > 0.5, 0.9 * v - 0.1 * v * v, v), None

    return lax.scan(step, v, None, length=24)[0]


def among(x: Any, loop: Function, mean: Function) -> Any:
    """Collectives before, around and after such a loop."""
    x = 1.2 * x - 0.1 * mean(x)

    def turn(x: Any, _: Any) -> Any:
        y = loop(x)
        return y + 0.3 + 0.1 * mean(y * y), None

    return jnp.sum(lax.scan(turn, x, None, length=2)[0] ** 2)


def alone(x: Any, loop: Function, mean: Function) -> Any:
    """No collective but the sum that makes it one number."""
    del mean
    return jnp.sum(loop(x) ** 2)


def before(x: Any, loop: Function, mean: Function) -> Any:
    return jnp.sum(loop(1.2 * x - 0.1 * mean(x)) ** 2)


def here(f: Function) -> Function:
    return lambda x: lax.psum(f(x, shrink, lambda v: lax.pmean(v, "d")), "d")


def everywhere(f: Function) -> Function:
    """The same of all devices' numbers at once; a device is a lane."""

    def run(x: Any) -> Any:
        of_lane = lambda x: f(x, shrink_bounded, lambda v: lax.pmean(v, "d"))  # noqa: E731
        return jnp.sum(jax.vmap(of_lane, axis_name="d")(x.reshape(8, -1)))

    return run


def ours(f: Function) -> Function:
    return retape.jax.grad(f, plan=PLAN)


def twice(slope: Function, grad: Function) -> Function:
    return grad(lambda x: jnp.sum(jnp.sin(slope(x))))


def lanes(f: Function) -> Function:
    return lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, 0.7 * x])), 0)


def cases(each: Function) -> Iterator[tuple[str, Function, Function]]:
    """Name, ours, and plain JAX's."""
    plain = {f: jax.grad(everywhere(f)) for f in (alone, among)}
    outside = {f: ours(each(here(f), WHOLE)) for f in (alone, among)}
    yield "among", outside[among], plain[among]
    inside = each(ours(here(alone)), SPLIT)
    yield "twice, inside", twice(inside, ours), twice(plain[alone], jax.grad)
    yield "lanes", lanes(outside[alone]), lanes(plain[alone])


def main() -> None:
    found: dict[str, float] = {}
    refused: dict[str, str] = {}
    ours_and_plain: dict[str, Any] = {}
    for kind in KINDS:
        mesh = mesh_of(kind)

        def each(f: Function, out: Any, **options: Any) -> Function:
            return jax.shard_map(
                f,
                mesh=mesh,  # noqa: B023
                in_specs=SPLIT,
                out_specs=out,
                **options,
            )

        alike = jnp.linspace(0.1, 3.0, 16)
        with jax.set_mesh(mesh):
            x = jax.device_put(alike, NamedSharding(mesh, SPLIT))
            for name, got, want in cases(each):
                now = (kind == AxisType.Explicit) == (name == "among")
                if now and name not in sys.argv[1:]:
                    with jax.set_mesh(mesh):
                        result = jax.jit(got)(x)
                    ours_and_plain[f"{name} ({kind.name})"] = result, want

            if kind == AxisType.Explicit:
                continue
            untold = each(ours(here(before)), SPLIT, check_vma=False)
            want = jax.grad(everywhere(before))(alike)
            # Without types that tell, `psum` is its own transpose: eight times it.
            found["untold (Auto)"] = difference(jax.jit(untold)(x) / 8, want)
            budget = retape.jax.grad(here(before), plan=retape.within("1 MB"))
            try:
                jax.jit(each(budget, SPLIT))(x)
            except retape.UnsupportedError as error:
                refused["budget"] = str(error)
    # Outside of the mesh: JAX 0.12 fails with lanes under Explicit axes.
    for name, (result, want) in ours_and_plain.items():
        found[name] = difference(result, want(alike))
    json.dump({"found": found, "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main()
