"""Loops and solves of others by our faces, against the same by what they stand for.

Rows are faces with their options, columns are transformations; the oracle is the value
and the gradient of the same program by Python, JAX, Flax or diffrax alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
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
from tests.judges.jax.loops import CELLS, LOOPS, OPTIONS, PLAN, unrolled
from tests.judges.pairwise import dealt

pytestmark = pytest.mark.usefixtures("double_precision")

Function = Callable[..., Any]
Pair = tuple[Function, Function]
FACES: dict[str, Pair] = {}


# Loops of a counter and a number ------------------------------------------------------


def turn(i: Any, x: Any) -> Any:
    return jnp.sin(x) + 0.1 * i * x


def _looped(loop: str, options: str, n: int) -> Function:
    return lambda x: LOOPS[loop](turn, x, n, **OPTIONS[options])


def _unrolled(x: Any) -> Any:
    return unrolled(turn, x, 11)


for _loop, _options in CELLS:
    FACES[f"{_loop}, {_options}"] = _looped(_loop, _options, 11), _unrolled
for _loop in LOOPS:
    FACES[f"{_loop}, no step"] = _looped(_loop, "by default", 0), lambda x: x


def _from_two(module: Any, upper: Any, x: Any) -> Any:
    return module.fori_loop(2, upper, turn, x)


FACES["fori_loop, bounds of data"] = (
    lambda x: _from_two(retape.jax, 9 + x.astype(int), x),
    lambda x: _from_two(lax, 9, x),
)


# Scans with rows ----------------------------------------------------------------------


def body(carry: Any, x: Any) -> tuple[Any, Any]:
    """Several carries, inputs and outputs, of several types."""
    h, count = carry
    h = jnp.tanh(h @ x["w"] + h * x["b"])
    return (h, count + x["n"]), (h.sum(), count)


def _scanned(module: Any, x: Any, n: int = 13, **options: Any) -> Any:
    numbers = jnp.sin(x * jnp.arange(10.0 * n)).reshape(n, 10)
    xs = {"w": numbers[:, :9].reshape(n, 3, 3), "b": numbers[:, 9], "n": jnp.arange(n)}
    (h, count), (sums, counts) = module.scan(
        body, (jnp.cos(x * jnp.arange(6.0)).reshape(2, 3), 0), xs, **options
    )
    return (h**2).sum() + (sums * jnp.arange(sums.size)).sum() + count + counts.sum()


def _written(module: Any, x: Any, **options: Any) -> Any:
    def body(c: Any, i: Any) -> Any:
        v, rows = c
        return (jnp.sin(v) * 1.2, rows.at[i].set(v)), None

    begin = x, jnp.zeros(7)
    how = {"buffers": lambda c: c[1], **options}
    (last, rows), _ = module.scan(body, begin, jnp.arange(7), **how)
    return last + jnp.sum(rows**2)


ROWS: dict[str, dict[str, Any]] = {
    **OPTIONS,
    "no row": {"n": 0},
    "one row": {"n": 1},
    "transposed in parts": {"segment_length": 4, "_split_transpose": True},
    "unrolled": {"levels": 2, "unroll": 2},
    "host, segments": {"segment_length": 4, "offload": "host"},
    "dots": {"levels": 2, "policy": jax.checkpoint_policies.dots_saveable},
    "backwards": {"reverse": True},
    "backwards in segments": {"reverse": True, "segment_length": 5},
    "backwards under a plan": {"reverse": True, "plan": PLAN},
}


@cache
def _rows_by_jax(n: int = 13, reverse: bool = False) -> Function:
    return lambda x: _scanned(lax, x, n, reverse=reverse)


def _rows(module: Any, options: dict[str, Any], **more: Any) -> Pair:
    """Ours, and that of `jax.lax` by the options that it knows."""
    theirs = {k: v for k, v in options.items() if k in ("n", "reverse")}
    ours = lambda x: _scanned(module, x, **options, **more)  # noqa: E731
    return ours, _rows_by_jax(**theirs)


for _name, _given in ROWS.items():
    FACES[f"scan of rows, {_name}"] = _rows(retape.jax, _given)
for _name, _given in {
    "some": {"checkpoints": 2},
    "all": {"checkpoints": "all"},
    "a plan": {"plan": PLAN},
}.items():
    FACES[f"equinox scan of rows, {_name}"] = _rows(
        retape.equinox, _given, kind="checkpointed"
    )
FACES["equinox scan with a buffer"] = (
    lambda x: _written(retape.equinox, x, kind="checkpointed", checkpoints=2),
    lambda x: _written(eqxi, x, kind="lax"),
)


# Buffers of Equinox's loops -----------------------------------------------------------


def _nested(loop: Function, x: Any, *, inner: bool, after: bool = False) -> Any:
    loop = partial(loop, kind="checkpointed", max_steps=4)

    def outer(carry: Any) -> Any:
        i, v = carry
        step = lambda c: (c[0], c[1] + 1, c[2].at[2 * c[0] + c[1]].set(x))  # noqa: E731
        chosen = (lambda c: c[2]) if inner else None
        _, _, v = loop(lambda c: c[1] < 2, step, (i, 0, v), buffers=chosen)
        return i + 1, v.at[i].set(x * x, pred=i > 0) if after else v

    out = loop(lambda c: c[0] < 2, outer, (0, jnp.zeros(4)), buffers=lambda c: c[1])
    return out[1] @ jnp.arange(1.0, 5.0)


def _set_by(step: Function, loop: Function, x: Any) -> Any:
    body = lambda c: (c[0] + 1, step(c[1], c[0], x))  # noqa: E731
    start = (0, jnp.zeros(4))
    how: dict[str, Any] = {"kind": "checkpointed", "max_steps": 4}
    out = loop(lambda c: c[0] < 3, body, start, buffers=lambda c: c[1], **how)
    return out[1] @ jnp.arange(1.0, 5.0)


BUFFERS: dict[str, Function] = {
    "of both loops": partial(_nested, inner=True),
    "of the outer loop": partial(_nested, inner=False),
    "set": partial(_set_by, lambda v, i, x: v.at[i].set(x)),
    "set if": partial(_set_by, lambda v, i, x: v.at[i].set(x, pred=i > 0)),
    "buffer_at_set": partial(
        _set_by, lambda v, i, x: eqxi.buffer_at_set(v, i, x, pred=i > 0)
    ),
    "its type": partial(
        _set_by, lambda v, i, x: v.at[i].set(x.astype(v.dtype) * v.size * len(v.shape))
    ),
}
for _name, _used in BUFFERS.items():
    FACES[f"a buffer, {_name}"] = (
        partial(_used, retape.equinox.while_loop),
        partial(_used, eqxi.while_loop),
    )
# Rows 0 and 1, then 2 and 3 are x; row 1 is x * x in the end.
FACES["a buffer, one after an inner loop"] = (
    partial(_nested, retape.equinox.while_loop, inner=False, after=True),
    lambda x: 8 * x + 2 * x * x,
)


# NNX ---------------------------------------------------------------------------------


class Layer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.w = nnx.Param(jax.random.normal(rngs.params(), (), jnp.float64))

    def __call__(self, x: Any) -> Any:
        return jnp.sin(x * self.w[...]) + x


def _stack() -> Layer:
    make = nnx.vmap(lambda key: Layer(nnx.Rngs(key)), in_axes=0, out_axes=0)
    return make(jax.random.split(jax.random.key(0), 7))


def _through_stack(scan: Function, x: Any, **options: Any) -> Any:
    axes = {"in_axes": (0, nnx.Carry), "out_axes": nnx.Carry}
    return scan(lambda layer, c: layer(c), **axes, **options)(_stack(), x)


for _name in ("by default", "in three levels", "in segments", "under a plan"):
    FACES[f"remat_scan, {_name}"] = (
        lambda x, how=OPTIONS[_name]: _through_stack(retape.nnx.remat_scan, x, **how),
        lambda x: _through_stack(nnx.scan, x),
    )


# diffrax -----------------------------------------------------------------------------


def _solved(adjoint: Any, x: Any, save: Any) -> Any:
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, a: -a * jnp.sin(y)),
        diffrax.Tsit5(),
        0.0,
        1.0,
        0.1,
        jnp.asarray(1.0),
        args=x,
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-8),
        saveat=save(),
        max_steps=64,
        adjoint=adjoint,
    )
    return jnp.sum(jnp.where(jnp.isfinite(found.ys), found.ys, 0.0) ** 2)


SAVED: dict[str, Function] = {
    "its end": lambda: diffrax.SaveAt(t1=True),
    "some times": lambda: diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 4)),
    "every step": lambda: diffrax.SaveAt(t0=True, steps=True),
}


def _solve(save: Function, **options: Any) -> Pair:
    return (
        lambda x: _solved(retape.diffrax.RetapeAdjoint(**options), x, save),
        lambda x: _solved(diffrax.DirectAdjoint(), x, save),
    )


for _name, _save in SAVED.items():
    FACES[f"a solve, {_name}"] = _solve(_save)
    FACES[f"a solve, {_name}, a plan"] = _solve(_save, plan=PLAN)

SLOW = (
    "a solve",
    "a buffer, its",
    "a buffer, of",
    "remat_scan",
    "equinox",
    "scan, ",
    "scan of rows, under a plan on",
    "scan of rows, in segments",
    "scan of rows, one row",
    "a buffer, buffer_at_set",
    "a buffer, set",
)
"""A few of these are asked on each change."""
FAST = (
    "scan, no step",
    "a buffer, set if",
    "equinox while_loop, under a plan",
    "equinox scan of rows, some",
    "remat_scan, in segments",
)


def taken(fun: Function, transform: str) -> Any:
    return TRANSFORMS[transform](jax.value_and_grad(fun), jnp.asarray(0.7))


wanted = cache(taken)
"""Many faces stand for the same program of JAX."""


@pytest.mark.slow(
    "scan of rows, in one level-vmap",
    "scan of rows, unrolled-itself",
    "scan of rows, backwards in segments-itself",
    "scan of rows, on the host-vmap",
)
@pytest.mark.parametrize(
    ("face", "transform"),
    [
        pytest.param(*cell.values, marks=pytest.mark.slow if slow else cell.marks)
        for cell in dealt(list(FACES), list(TRANSFORMS))
        for face in [str(cell.values[0])]
        for slow in [face.startswith(SLOW) and face not in FAST]
    ],
)
def test_a_face_has_the_gradient_of_what_it_stands_for(
    face: str, transform: str
) -> None:
    ours, theirs = FACES[face]
    tolerance = 1e-6 if face.startswith("a solve") else 1e-11
    assert_equal(taken(ours, transform), wanted(theirs, transform), tolerance)


def test_the_comparison_finds_a_small_lie() -> None:
    ours, theirs = FACES["scan of rows, by default"]
    with pytest.raises(AssertionError):
        assert_equal(jax.grad(ours)(0.7), jax.grad(theirs)(0.7 + 1e-6), 1e-11)
