"""`jax.export` with symbolic shapes, to three platforms, through bytes and back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import retape
import retape.jax
from retape.jax import checkpoint, checkpointed, policies

W = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4, 4)) / 2)
X = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)))
PLAN = retape.fixed_space(snapshots=3, stage=1)


def scanned(x: Any, w: Any) -> Any:
    return (lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)[0] ** 2).sum()


def unrolled(x: Any, w: Any) -> Any:
    for i in range(3):
        x = jnp.tanh(x @ w[i])
    return (x**2).sum()


def marked(policy: Any) -> Any:
    return jax.grad(checkpoint(unrolled, policy=policy))


GRADIENTS: dict[str, tuple[Any, Any]] = {
    "scan, fixed": (retape.jax.grad(scanned, plan=PLAN), scanned),
    "checkpointed": (jax.grad(checkpointed(scanned)), scanned),
    "sqrt": (marked(policies.sqrt()), unrolled),
    "selective": (marked(policies.selective()), unrolled),
}


def exported(gradient: Any) -> Any:
    """For any number of rows and three platforms, written to bytes and read again."""
    (rows,) = export.symbolic_shape("rows")
    types = [jax.ShapeDtypeStruct(s, X.dtype) for s in ((rows, 4), W.shape)]
    whole = export.export(jax.jit(gradient), platforms=("cpu", "cuda", "tpu"))(*types)
    return export.deserialize(whole.serialize())


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_is_exported_for_any_number_of_rows(name: str) -> None:
    ours, plain = GRADIENTS[name]
    found = exported(ours)
    assert found.platforms == ("cpu", "cuda", "tpu")
    for rows in (5, 2):
        want = jax.grad(plain)(X[:rows], W)
        np.testing.assert_allclose(found.call(X[:rows], W), want, rtol=1e-5, atol=1e-6)


def test_bytes_cannot_be_counted_where_a_size_is_a_symbol() -> None:
    with pytest.raises(retape.PlanError, match="arrays of symbolic shape"):
        exported(marked(policies.within("1 MB")))


# Loops of any number of steps ------------------------------------------------------


def by_index(w: Any, **how: Any) -> Any:
    turn = lambda i, c: jnp.sin(c * w[i])  # noqa: E731
    return retape.jax.fori_loop(0, w.shape[0], turn, jnp.ones((), w.dtype), **how)


def while_there_are(w: Any, **how: Any) -> Any:
    """The test reads the size itself, as a number of the program's width."""
    going = lambda c: c[0] < w.shape[0]  # noqa: E731
    turn = lambda c: (c[0] + 1, jnp.sin(c[1] * w[c[0]]))  # noqa: E731
    return retape.jax.while_loop(going, turn, (0, jnp.ones((), w.dtype)), **how)[1]


def row_by_row(w: Any, module: Any = retape.jax, **how: Any) -> Any:
    turn = lambda c, w: (jnp.sin(c * w), None)  # noqa: E731
    return module.scan(turn, jnp.ones((), w.dtype), w, **how)[0]


def of_any_length(loop: Any) -> Any:
    (steps,) = export.symbolic_shape("steps")
    kind = jax.ShapeDtypeStruct((steps,), jnp.float32)
    return export.export(jax.jit(jax.grad(loop)))(kind)


@pytest.mark.parametrize("how", [{}, {"plan": PLAN}], ids=str)
@pytest.mark.parametrize("loop", [by_index, while_there_are])
def test_a_loop_may_end_at_a_size_that_is_a_symbol(loop: Any, how: Any) -> None:
    found = of_any_length(lambda w: loop(w, **how))
    for n in (5, 2):
        w = jnp.linspace(0.5, 1.5, n, dtype=jnp.float32)
        want = jax.grad(lambda w: row_by_row(w, lax))(w)
        np.testing.assert_allclose(found.call(w), want, rtol=1e-5)


@pytest.mark.parametrize(
    "loop",
    [
        row_by_row,
        lambda w: row_by_row(w, plan=PLAN),
        retape.jax.checkpointed(lambda w: row_by_row(w, lax)),
        checkpoint(lambda w: row_by_row(w, lax), policy=policies.sqrt()),
    ],
)
def test_how_a_scan_is_divided_depends_on_its_length(loop: Any) -> None:
    with pytest.raises(retape.UnsupportedError, match="a symbol of `jax.export`"):
        of_any_length(loop)
