"""Every construct that others bring, by every way in and by what tells of it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

import retape
import retape.jax
from tests.judges.jax.constructs import CONSTRUCTS, Construct
from tests.judges.jax.judging import LAYERS, PLANS, WAYS, assert_equal
from tests.judges.pairwise import dealt

pytestmark = pytest.mark.usefixtures("double_precision")

X = 0.7
BY_NAME = {c.name: c for c in CONSTRUCTS}
REVERSIBLE = [c.name for c in CONSTRUCTS if c.reversible]


@functools.cache
def wanted(name: str) -> tuple[Any, Any]:
    """Value of `fun`, which is right by itself, and the plain form's derivative."""
    construct = BY_NAME[name]
    x = jnp.asarray(X)
    return construct.fun(x), jax.jit(jax.grad(construct.plain))(x)


@pytest.mark.parametrize(("name", "way"), dealt(list(BY_NAME), list(WAYS)))
def test_the_gradient_is_that_of_the_plain_form(name: str, way: str) -> None:
    gradient = WAYS[way](BY_NAME[name].fun, PLANS["snapshots"])
    assert_equal(gradient(jnp.asarray(X)), wanted(name)[1])


def in_a_step(f: Any) -> Any:
    return lambda x: retape.jax.scan(lambda c, _: (f(c), None), x, length=1)[0]


ALL_LAYERS = LAYERS | {"scan": in_a_step}


# That policies which cut between operations gain nothing in a loop is advice.
@pytest.mark.slow("equinox scan-within", "equinox checkpointed in another-names")
@pytest.mark.filterwarnings("ignore:.*Write the loop as `retape.jax.scan`")
@pytest.mark.parametrize(("name", "layer"), dealt(REVERSIBLE, list(ALL_LAYERS)))
def test_a_marked_layer_has_that_gradient(name: str, layer: str) -> None:
    marked = ALL_LAYERS[layer](BY_NAME[name].fun)
    value, gradient = jax.value_and_grad(marked)(jnp.asarray(X))
    assert_equal(value, wanted(name)[0])
    assert_equal(gradient, wanted(name)[1])


def explained(construct: Construct, x: Any) -> bool:
    found = retape.jax.explain(construct.fun, x, plan=PLANS["snapshots"])
    return found.blocks > 0 and found.peak_bytes >= 0


def measured(construct: Construct, x: Any) -> bool:
    found = retape.jax.measure(construct.fun, x, plan=PLANS["snapshots"])
    assert_equal((found.value, found.gradient), wanted(construct.name))
    return found.report is not None


def advised(construct: Construct, x: Any) -> bool:
    found = retape.jax.advise(construct.fun, x, memory="1 MB")
    assert_equal(jax.grad(found.apply(construct.fun))(x), wanted(construct.name)[1])
    return found.chosen.peak_bytes <= 10**6


def listed(construct: Construct, x: Any) -> bool:
    """Under a plan, where JAX itself keeps nothing because it refuses."""
    fun = (
        construct.fun
        if construct.reversible
        else retape.jax.checkpointed(construct.fun)
    )
    return all(v.nbytes > 0 for v in retape.jax.saved(fun, x))


TELLING = {f.__name__: f for f in (explained, measured, advised, listed)}


@pytest.mark.slow(
    "equinox scan-advised",
    "equinox of ours-advised",
    "lanes-advised",
    "a reference-advised",
)
@pytest.mark.parametrize(("name", "way"), dealt(list(BY_NAME), list(TELLING)))
def test_what_tells_of_it_agrees(name: str, way: str) -> None:
    assert TELLING[way](BY_NAME[name], jnp.asarray(X))


@pytest.mark.slow(
    "a marked function",
    "equinox bounded",
    "equinox checkpointed",
    "equinox checkpointed in a branch",
    "equinox of ours",
    "custom jvp",
    "custom vjp",
    "lanes",
    "symbolic zeros",
    "shard map",
    "equinox checkpointed in another",
)
@pytest.mark.parametrize("name", [c.name for c in CONSTRUCTS if not c.calls_back])
def test_its_gradient_is_exported_for_any_number_of_lanes(name: str) -> None:
    gradient = jax.jit(jax.vmap(retape.jax.grad(BY_NAME[name].fun)))
    (lanes,) = export.symbolic_shape("lanes")
    types = jax.ShapeDtypeStruct((lanes,), jnp.float64)
    again = export.deserialize(export.export(gradient)(types).serialize())
    assert_equal(again.call(jnp.asarray([X]))[0], wanted(name)[1])
