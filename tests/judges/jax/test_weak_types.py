"""Every number that is made or handed out has the type that JAX's counterpart gives.

Rows are entrances, each beside its counterpart in JAX; columns are what goes in. A weak
type, that of a Python number, is what keeps such a number from widening a network of 16
bits: so it is compared, beside the element type, of each result, gradient and tangent.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.equinox
import retape.jax
from tests.judges.pairwise import dealt

PLAN = retape.fixed_space(snapshots=2, stage=1)
HALF = jnp.ones(2, jnp.bfloat16)

INPUTS: dict[str, Any] = {
    "a Python float": 0.5,
    "a weak array": jnp.asarray(0.5),
    "a float32": jnp.float32(0.5),
    "a bfloat16": jnp.bfloat16(0.5),
    "a row of bfloat16": HALF,
}
WHOLE: dict[str, Any] = {
    "a Python int": 3,
    "a Python bool": True,
    "an int8": jnp.int8(3),
}

Function = Callable[[Any], Any]


def body(x: Any) -> Any:
    """Numbers of every kind beside one that was given."""
    return {
        "through": x * 0.5,
        "number": 2.0,
        "count": 3,
        "truth": True,
        "mixed": x * HALF,
    }


def real(x: Any) -> Any:
    return jnp.sum(x * jnp.sin(x) * 0.5)


def whole(x: Any) -> Any:
    return x * 2, x + 1, x + 0.5


def ending(loop: Callable[..., Any], **options: Any) -> Function:
    """A loop whose counter is a Python number."""

    def run(x: Any) -> Any:
        step = lambda s: (s[0] + 1, s[1] * 0.5, s[2] + 0.5)  # noqa: E731
        return loop(lambda s: s[0] < 3, step, (0, x, 1.0), **options)

    return run


def counting(loop: Callable[..., Any], lower: Any = 0, **options: Any) -> Function:
    def run(x: Any) -> Any:
        step = lambda i, s: (s[0] * (i + 1), s[1] + i)  # noqa: E731
        return loop(lower, 3, step, (x, jnp.int8(0)), **options)

    return run


def scanning(loop: Callable[..., Any], **options: Any) -> Function:
    def run(x: Any) -> Any:
        step = lambda c, r: ((c[0] * 0.5, c[1] + 1), (c[0] * r, c[1]))  # noqa: E731
        return loop(step, (x, 0), jnp.ones(4, jnp.bfloat16), **options)

    return run


PAIRS: dict[str, tuple[Function, Function]] = {
    "checkpoint": (retape.jax.checkpoint(body), jax.checkpoint(body)),
    "checkpoint with a policy": (
        retape.jax.checkpoint(body, policy=retape.jax.policies.sqrt()),
        jax.checkpoint(body),
    ),
    "Checkpointed": (retape.jax.Checkpointed(body), jax.checkpoint(body)),
    "checkpointed": (retape.jax.checkpointed(body), body),
    "checkpointed, compiled": (jax.jit(retape.jax.checkpointed(body)), jax.jit(body)),
    "vjp, the value": (
        lambda x: retape.jax.vjp(body, x)[0],
        lambda x: jax.vjp(body, x)[0],
    ),
    "equinox.while_loop": (
        ending(retape.equinox.while_loop, kind="checkpointed"),
        ending(eqxi.while_loop, kind="checkpointed", max_steps=9),
    ),
    "fori_loop from an int16": (
        counting(retape.jax.fori_loop, jnp.int16(0)),
        counting(lax.fori_loop, jnp.int16(0)),
    ),
}
MADE = {"while_loop": ending, "fori_loop": counting, "scan": scanning}
for _loop, _make in MADE.items():
    for _options in ({}, {"levels": 2}, {"plan": PLAN}):
        PAIRS[f"{_loop}, {[*_options]}"] = (
            _make(getattr(retape.jax, _loop), **_options),
            _make(getattr(lax, _loop)),
        )

GRADIENTS: dict[str, tuple[Function, Function]] = {
    "grad": (retape.jax.grad(real), jax.grad(real)),
    "grad by the host": (
        retape.jax.grad(real, progress=lambda _: None),
        jax.grad(real),
    ),
    "value_and_grad": (retape.jax.value_and_grad(real), jax.value_and_grad(real)),
    "grad, compiled": (jax.jit(retape.jax.grad(real)), jax.jit(jax.grad(real))),
    "grad of a function that stands still": (
        retape.jax.grad(lambda x: jnp.sum(lax.stop_gradient(x))),
        jax.grad(lambda x: jnp.sum(lax.stop_gradient(x))),
    ),
    "grad with aux": (
        retape.jax.grad(lambda x: (real(x), body(x)), has_aux=True),
        jax.grad(lambda x: (real(x), body(x)), has_aux=True),
    ),
    "measure": (lambda x: retape.jax.measure(real, x).gradient, jax.grad(real)),
    "grad of checkpoint": (jax.grad(retape.jax.checkpoint(real)), jax.grad(real)),
    "grad of checkpointed": (jax.grad(retape.jax.checkpointed(real)), jax.grad(real)),
    "jvp of checkpointed": (
        lambda x: jax.jvp(retape.jax.checkpointed(real), (x,), (x,)),
        lambda x: jax.jvp(real, (x,), (x,)),
    ),
    "vjp's pull-back": (
        lambda x: retape.jax.vjp(lambda x: x * 0.5, x)[1](x),
        lambda x: jax.vjp(lambda x: x * 0.5, x)[1](x),
    ),
    "second derivative": (
        jax.grad(lambda x: jnp.sum(retape.jax.grad(real)(x))),
        jax.grad(lambda x: jnp.sum(jax.grad(real)(x))),
    ),
}


def types(tree: Any) -> Iterator[tuple[str, Any, bool]]:
    """The path, element type and weakness of each leaf, for Python's numbers, too."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        aval = jax.typeof(leaf)
        yield jax.tree_util.keystr(path), aval.dtype, aval.weak_type


def assert_same_types(pair: tuple[Function, Function], given: Any) -> None:
    ours, theirs = pair
    assert list(types(ours(given))) == list(types(theirs(given)))


@pytest.mark.parametrize(("way", "given"), dealt(list(PAIRS), list(INPUTS), rounds=2))
def test_a_result_is_as_weakly_typed_as_in_jax(way: str, given: str) -> None:
    assert_same_types(PAIRS[way], INPUTS[given])


@pytest.mark.parametrize(
    ("way", "given"), dealt(list(GRADIENTS), list(INPUTS), rounds=2)
)
def test_a_derivative_is_as_weakly_typed_as_in_jax(way: str, given: str) -> None:
    assert_same_types(GRADIENTS[way], INPUTS[given])


@pytest.mark.parametrize("given", WHOLE)
@pytest.mark.parametrize("mark", ["checkpoint", "Checkpointed", "checkpointed"])
def test_a_whole_number_is_as_weakly_typed_as_in_jax(mark: str, given: str) -> None:
    assert_same_types((getattr(retape.jax, mark)(whole), jax.jit(whole)), WHOLE[given])
