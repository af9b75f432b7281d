"""Loops and solves of others by our faces, against the same by what they stand for.

Rows are faces with their options, columns are transformations; the oracle is the
gradient of the same program by JAX, Flax or diffrax alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax import lax

import retape
import retape.diffrax
import retape.equinox
import retape.jax
import retape.nnx
from tests.judges.jax.judging import TRANSFORMS, assert_equal

pytestmark = pytest.mark.usefixtures("double_precision")

Function = Callable[..., Any]
PLAN = retape.fixed_space(snapshots=2, stage=1)
STEPS = 7


# Equinox ----------------------------------------------------------------------------


def _scanned(module: Any, x: Any, **options: Any) -> Any:
    body = lambda c, row: (jnp.sin(c) * row, c)  # noqa: E731
    rows = jnp.linspace(0.5, 1.5, STEPS)
    last, ys = module.scan(body, x, rows, **options)
    return last + jnp.sum(ys**2)


def _written(module: Any, x: Any, **options: Any) -> Any:
    def body(c: Any, i: Any) -> Any:
        v, rows = c
        return (jnp.sin(v) * 1.2, rows.at[i].set(v)), None

    begin = x, jnp.zeros(STEPS)
    how = {"buffers": lambda c: c[1], **options}
    (last, rows), _ = module.scan(body, begin, jnp.arange(STEPS), **how)
    return last + jnp.sum(rows**2)


# NNX ---------------------------------------------------------------------------------


class Layer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.w = nnx.Param(jax.random.normal(rngs.params(), (), jnp.float64))

    def __call__(self, x: Any) -> Any:
        return jnp.sin(x * self.w[...]) + x


def _stack() -> Layer:
    make = nnx.vmap(lambda key: Layer(nnx.Rngs(key)), in_axes=0, out_axes=0)
    return make(jax.random.split(jax.random.key(0), STEPS))


def _through_stack(scan: Function, x: Any) -> Any:
    run = scan(lambda layer, c: layer(c), in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
    return run(_stack(), x)


def _nnx(**options: Any) -> Function:
    scan = lambda f, **how: retape.nnx.remat_scan(f, **how, **options)  # noqa: E731
    return lambda x: _through_stack(scan, x)


# diffrax -----------------------------------------------------------------------------


def _solved(adjoint: Any, x: Any, *, saved: bool = False) -> Any:
    save = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 4)) if saved else None
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, a: -a * jnp.sin(y)),
        diffrax.Tsit5(),
        0.0,
        1.0,
        0.1,
        jnp.asarray(1.0),
        args=x,
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-8),
        saveat=save or diffrax.SaveAt(t1=True),
        max_steps=64,
        adjoint=adjoint,
    )
    return jnp.sum(found.ys**2)


def _ours(**options: Any) -> Any:
    return retape.diffrax.RetapeAdjoint(**options)


FACES: dict[str, tuple[Function, Function]] = {
    "equinox scan": (
        lambda x: _scanned(retape.equinox, x, kind="checkpointed", checkpoints=2),
        lambda x: _scanned(lax, x),
    ),
    "equinox scan, all": (
        lambda x: _scanned(retape.equinox, x, kind="checkpointed", checkpoints="all"),
        lambda x: _scanned(lax, x),
    ),
    "equinox scan, a plan": (
        lambda x: _scanned(retape.equinox, x, kind="checkpointed", plan=PLAN),
        lambda x: _scanned(lax, x),
    ),
    "equinox scan with a buffer": (
        lambda x: _written(retape.equinox, x, kind="checkpointed", checkpoints=2),
        lambda x: _written(eqxi, x, kind="lax"),
    ),
    "remat_scan": (_nnx(), lambda x: _through_stack(nnx.scan, x)),
    "remat_scan, levels": (_nnx(levels=2), lambda x: _through_stack(nnx.scan, x)),
    "remat_scan, segments": (
        _nnx(segment_length=3),
        lambda x: _through_stack(nnx.scan, x),
    ),
    "remat_scan, a plan": (_nnx(plan=PLAN), lambda x: _through_stack(nnx.scan, x)),
    "a solve": (
        lambda x: _solved(_ours(), x),
        lambda x: _solved(diffrax.DirectAdjoint(), x),
    ),
    "a solve, a plan": (
        lambda x: _solved(_ours(plan=PLAN), x),
        lambda x: _solved(diffrax.DirectAdjoint(), x),
    ),
    "a solve, saved times": (
        lambda x: _solved(_ours(plan=PLAN), x, saved=True),
        lambda x: _solved(diffrax.DirectAdjoint(), x, saved=True),
    ),
}
# The options of our own loops, one by one.
for _name, _options in {
    "levels": {"levels": 2},
    "segments": {"segment_length": 3},
    "a policy": {"policy": retape.jax.policies.selective()},
    "host": {"offload": "host"},
    "host, a plan": {"offload": "host", "plan": PLAN},
    "unrolled": {"unroll": 2},
    "backwards": {"reverse": True},
    "backwards, a plan": {"reverse": True, "plan": PLAN},
}.items():
    FACES[f"scan, {_name}"] = (
        lambda x, options=_options: _scanned(retape.jax, x, **options),
        lambda x, options=_options: _scanned(lax, x, reverse="reverse" in options),
    )

FAST = ("equinox scan", "scan, levels", "scan, host")


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    "face",
    [pytest.param(f, marks=() if f in FAST else pytest.mark.slow) for f in FACES],
)
def test_a_face_has_the_gradient_of_what_it_stands_for(
    face: str, transform: str
) -> None:
    ours, theirs = FACES[face]
    x = jnp.asarray(0.7)
    got, want = (TRANSFORMS[transform](jax.grad(f), x) for f in (ours, theirs))
    assert_equal(got, want, 1e-6)
