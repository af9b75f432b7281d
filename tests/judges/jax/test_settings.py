"""A function that is asked again under another of JAX's settings answers anew.

Rows are the ways to call a function, columns are settings of JAX's. Each function is
called before the setting is changed, so that whatever is remembered is remembered; what
comes out under the setting must be what JAX's own gradient gives there, traced afresh.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.judges.jax.loops import LOOPS, PLAN
from tests.judges.pairwise import dealt

X = np.arange(1.0, 5.0, dtype=np.float32)


def drawn(x: Any) -> Any:
    """Random numbers, whose form is a setting."""
    return jnp.sum(x * jax.random.normal(jax.random.key(0), x.shape))


def widened(x: Any) -> Any:
    """Whole numbers that are as wide as the setting says."""
    return jnp.sum(jnp.exp(jnp.linspace(0.0, 1.0, 4, dtype=float)) * x)


def promoted(x: Any) -> Any:
    """Two types are mixed: allowed by one setting, and refused by another."""
    return jnp.sum(x * jnp.arange(4, dtype=jnp.int32))


def precise(x: Any) -> Any:
    """A product whose precision is read from the setting, as JAX's product does."""
    exact = jax.config.jax_default_matmul_precision == "highest"
    return jnp.sum(x * (2.0 if exact else 3.0))


def infinite(x: Any) -> Any:
    """A derivative that is no number, at which a setting makes JAX stop."""
    return jnp.sum(jnp.sqrt(x * 0.0))


Setting = Callable[[], AbstractContextManager[Any]]
SETTINGS: dict[str, tuple[Callable[[Any], Any], Setting]] = {
    "threefry_partitionable": (drawn, lambda: jax.threefry_partitionable(False)),
    "enable_x64": (widened, lambda: jax.enable_x64(True)),
    "numpy_dtype_promotion": (promoted, lambda: jax.numpy_dtype_promotion("strict")),
    "default_matmul_precision": (
        precise,
        lambda: jax.default_matmul_precision("highest"),
    ),
    "debug_nans": (infinite, lambda: jax.debug_nans(True)),
}

Function = Callable[[Any], Any]


def in_loop(loop: str, **options: Any) -> Callable[[Function], Function]:
    """The gradient through one trip of a loop around the function."""

    def run(f: Function, x: Any) -> Any:
        zero = jnp.zeros((), jax.eval_shape(f, x).dtype)
        return LOOPS[loop](lambda i, c: c + f(x), zero, 1, **options)

    return lambda f: jax.grad(lambda x: run(f, x))


WAYS: dict[str, Callable[[Function], Function]] = {
    "grad": retape.jax.grad,
    "grad under a plan": lambda f: retape.jax.grad(f, plan=PLAN),
    "grad within bytes": lambda f: retape.jax.grad(f, plan=retape.within("1 MB")),
    "grad by the host": lambda f: retape.jax.grad(f, progress=lambda _: None),
    "vjp": lambda f: lambda x: retape.jax.vjp(f, x)[1](np.ones((), f(x).dtype))[0],
    "measure": lambda f: lambda x: retape.jax.measure(f, x).gradient,
    "checkpointed": lambda f: jax.grad(retape.jax.checkpointed(f)),
    "checkpoint": lambda f: jax.grad(retape.jax.checkpoint(f)),
    "checkpoint within bytes": lambda f: jax.grad(
        retape.jax.checkpoint(f, policy=retape.within("1 MB"))
    ),
    "Checkpointed": lambda f: jax.grad(retape.jax.Checkpointed(f)),
    "scan": in_loop("scan"),
    "scan under a plan": in_loop("scan", plan=PLAN),
    "fori_loop": in_loop("fori_loop"),
    "while_loop": in_loop("while_loop"),
}


def outcome(run: Function) -> Any:
    """A gradient and its type, or the kind of the refusal."""
    try:
        found = run(X)
    except (TypeError, ValueError, FloatingPointError) as error:
        return "refused", isinstance(error, FloatingPointError)
    return found.dtype, np.asarray(found).tobytes()


@pytest.mark.slow("grad-threefry_partitionable")
@pytest.mark.parametrize(("way", "setting"), dealt(list(WAYS), list(SETTINGS)))
def test_an_answer_is_that_of_the_settings_it_is_asked_under(
    way: str, setting: str
) -> None:
    function, under = SETTINGS[setting]
    asked = WAYS[way](function)
    before = outcome(asked)
    assert before == outcome(jax.grad(function))
    with under():
        assert outcome(asked) == outcome(jax.grad(lambda x: function(x)))
    # And back: what was remembered under the setting stays there.
    assert outcome(asked) == before
