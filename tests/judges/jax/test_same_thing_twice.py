"""The same thing asked twice: one number given twice, two equal functions, one body.

What is remembered must not show: each function is told of its own lines and warned of
its own faults.
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax

Function = Callable[..., Any]
PLAN = retape.fixed_space(snapshots=2, stage=1)

WAYS: dict[str, Callable[[Function], Function]] = {
    "grad": retape.jax.grad,
    "grad under a plan": lambda f: retape.jax.grad(f, plan=PLAN),
    "grad by the host": lambda f: retape.jax.grad(f, progress=lambda _: None),
    "value_and_grad": retape.jax.value_and_grad,
    "vjp": lambda f: lambda x: retape.jax.vjp(f, x)[1](jnp.ones_like(x)),
    "measure": lambda f: lambda x: retape.jax.measure(f, x),
    "checkpointed": lambda f: jax.grad(retape.jax.checkpointed(f)),
}


def ended(step: Function, x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, step(c[1])), (0, x))


def refused() -> list[Function]:
    """Two functions that do the same at two lines, which has no derivative."""
    real = jax.ShapeDtypeStruct((), jnp.float32)

    def one(x: Any) -> Any:
        return ended(lambda v: jax.pure_callback(np.sin, real, v), x)[1]

    def two(x: Any) -> Any:
        return ended(lambda v: jax.pure_callback(np.sin, real, v), x)[1]

    return [one, two]


def warned() -> list[Function]:
    """Two functions that call one rule with a hidden tape at two lines."""

    @jax.custom_vjp
    def loop(x: Any) -> Any:
        return lax.fori_loop(0, 50, lambda i, v: jnp.sin(v), x)

    def forward(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(c), c), x, None, 50)

    def back(rows: Any, c: Any) -> Any:
        pull = lambda c, y: (c * jnp.cos(y), None)  # noqa: E731
        return (lax.scan(pull, c, rows, reverse=True)[0],)

    loop.defvjp(forward, back)

    def one(x: Any) -> Any:
        return loop(x)

    def two(x: Any) -> Any:
        return loop(x)

    return [one, two]


def line_in(function: Function) -> str:
    """The file and the line at which a function of one line does what it does."""
    at = inspect.getsourcelines(function)[1] + 1
    return f"{__file__}:{at} "


# Under `jax.grad` JAX itself refuses, before the library is asked for a derivative.
@pytest.mark.parametrize("way", [w for w in WAYS if w not in ("vjp", "checkpointed")])
def test_each_of_two_equal_functions_is_told_of_its_own_line(way: str) -> None:
    for function in refused():
        with pytest.raises(retape.UnsupportedError) as said:
            WAYS[way](function)(jnp.float32(1.0))
        assert line_in(function) in str(said.value)


@pytest.mark.parametrize("way", WAYS)
def test_each_of_two_equal_functions_is_warned_of_its_own_line(way: str) -> None:
    for function in warned():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            WAYS[way](function)(jnp.float32(1.0))
        assert any(line_in(function) in str(each.message) for each in said)


def power(x: Any, n: Any) -> Any:
    """It looks at the value of its second argument."""
    for _ in range(int(n)):
        x = x * x
    return x


@pytest.mark.parametrize("by", [0, 1, (0, 1)])
@pytest.mark.parametrize("grad", ["grad", "value_and_grad"])
def test_one_number_given_twice_is_two_arguments(grad: str, by: Any) -> None:
    number = 3.0

    def f(x: Any, y: Any) -> Any:
        return power(x, 2.0) * y if by != 0 else power(x, y)

    ours, theirs = getattr(retape.jax, grad)(f, by), getattr(jax, grad)(f, by)
    got, want = ours(number, number), theirs(number, number)
    assert jax.tree.map(float, got) == jax.tree.map(float, want)
