"""A marked function is traced once for its types, and again if what it reads changed.

`jax.checkpoint` traces a function once, and does not look at what it closes over. Here
the rows of the second table change something that a function reads between two calls,
in every way that Python has; the oracle is the function itself, not marked.
"""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.judges.jax.judging import LAYERS, assert_equal
from tests.judges.pairwise import dealt

Function = Callable[..., Any]

MARKS: dict[str, Callable[[Function], Function]] = LAYERS | {
    "called at once": lambda f: lambda x: retape.jax.checkpoint(f, x),
}


def several(f: Function, x: Any) -> Any:
    for _ in range(4):
        x = f(x)
    return x


CALLS: dict[str, Callable[[Function, Any], Any]] = {
    "run": several,
    "compiled": lambda f, x: jax.jit(functools.partial(several, f))(x),
    "differentiated": lambda f, x: jax.grad(functools.partial(several, f))(x),
    "both": lambda f, x: jax.jit(jax.grad(functools.partial(several, f)))(x),
    "for a batch": lambda f, x: jax.vmap(functools.partial(several, f))(x[None]),
}


@pytest.mark.parametrize(("mark", "call"), dealt(list(MARKS), list(CALLS), rounds=2))
def test_a_marked_function_is_traced_once(mark: str, call: str) -> None:
    traces = [0]

    def layer(x: Any) -> Any:
        traces[0] += 1
        return jnp.sin(x) * x

    marked = MARKS[mark](layer)
    CALLS[call](marked, jnp.float32(0.5))
    assert traces == [1]


def test_equal_layers_are_traced_once() -> None:
    traces = [0]

    @jax.tree_util.register_dataclass
    @dataclass
    class Layer:
        w: Any

        def __call__(self, x: Any) -> Any:
            traces[0] += 1
            return jnp.sin(x) * self.w

    x = jnp.float32(0.5)
    for i in range(3):
        x = retape.jax.Checkpointed(Layer(jnp.float32(i)))(x)
    assert traces == [1]


def _counting(nnx: Any) -> Any:
    """A module that counts its calls in an array, and its traces in Python."""

    class Counting(nnx.Module):
        traces = 0

        def __init__(self) -> None:
            self.w = nnx.Param(jnp.float32(1.5))
            self.calls = nnx.BatchStat(jnp.float32(0.0))

        def __call__(self, x: Any) -> Any:
            Counting.traces += 1
            self.calls[...] += 1.0
            return jnp.sin(x * self.w[...])

    return Counting


@pytest.mark.release
@pytest.mark.parametrize("call", ["run", "differentiated", "both"])
@pytest.mark.parametrize("mark", ["checkpoint", "Checkpointed", "checkpointed"])
def test_an_nnx_module_is_traced_once_and_changed_each_time(
    mark: str, call: str
) -> None:
    nnx = pytest.importorskip("flax.nnx")
    counting = _counting(nnx)
    layers = [counting() for _ in range(3)]

    def loss(layers: Any, x: Any, wrap: Function) -> Any:
        for layer in layers:
            x = wrap(layer)(x)
        return x

    def run(wrap: Function) -> Any:
        f = lambda layers, x: loss(layers, x, wrap)  # noqa: E731
        x = jnp.float32(0.5)
        if call == "run":
            return f(layers, x)
        taken = nnx.value_and_grad(f)
        return (nnx.jit(taken) if call == "both" else taken)(layers, x)

    got = run(MARKS[mark])
    assert counting.traces == 1
    assert [float(layer.calls[...]) for layer in layers] == [1.0, 1.0, 1.0]
    assert_equal(jax.tree.leaves(got), jax.tree.leaves(run(lambda f: f)), 1e-5)


# What a function reads ------------------------------------------------------------

FACTOR = 2.0
"""A global that the function below reads, and the one that it calls."""


def _scaled(x: Any) -> Any:
    return x * FACTOR


def _through(x: Any) -> Any:
    return jnp.sin(_scaled(x))


Changed = Iterator[Function]
"""Gives a function, changes what it reads, and gives it again."""
CHANGES: list[Callable[[], Changed]] = []
VALUES = 2.0, 3.0


def change(made: Callable[[], Changed]) -> Callable[[], Changed]:
    CHANGES.append(made)
    return made


@change
def a_global() -> Changed:
    for value in VALUES:
        globals()["FACTOR"] = value
        yield _scaled


@change
def a_global_of_what_it_calls() -> Changed:
    for value in VALUES:
        globals()["FACTOR"] = value
        yield _through


@change
def a_closed_over_number() -> Changed:
    f = lambda x: x * factor  # noqa: E731
    for value in VALUES:
        factor = value
        yield f


@change
def a_closed_over_array() -> Changed:
    f = lambda x: x * factor  # noqa: E731
    for value in VALUES:
        factor = jnp.float32(value)
        yield f


@change
def a_closed_over_function() -> Changed:
    f = lambda x: inner(x)  # noqa: E731
    for value in (jnp.sin, jnp.cos):
        inner = value
        yield f


@change
def an_item_of_a_list() -> Changed:
    factors = [0.0]
    f = lambda x: x * factors[0]  # noqa: E731
    for value in VALUES:
        factors[0] = value
        yield f


@change
def an_item_of_a_dictionary() -> Changed:
    options = {"deep": {"factor": 0.0}}
    f = lambda x: x * options["deep"]["factor"]  # noqa: E731
    for value in VALUES:
        options["deep"]["factor"] = value
        yield f


@change
def an_array_changed_in_place() -> Changed:
    factors = np.zeros(1, np.float32)
    f = lambda x: x * factors[0]  # noqa: E731
    for value in VALUES:
        factors[0] = value
        yield f


class Scale:
    factor = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.factor


@change
def an_attribute() -> Changed:
    scale = Scale()
    for value in VALUES:
        scale.factor = value
        yield scale


@change
def an_attribute_of_what_is_closed_over() -> Changed:
    scale = Scale()
    f = lambda x: scale(x)  # noqa: E731
    for value in VALUES:
        scale.factor = value
        yield f


@change
def an_attribute_of_a_class() -> Changed:
    scale = Scale()
    for value in VALUES:
        Scale.factor = value
        yield scale.__call__


@change
def a_default() -> Changed:
    def f(x: Any, factor: Any = 0.0) -> Any:
        return x * factor

    for value in VALUES:
        f.__defaults__ = (value,)
        yield f


@change
def an_attribute_of_a_module() -> Changed:
    settings = types.ModuleType("settings")
    f = lambda x: x * settings.factor  # noqa: E731
    for value in VALUES:
        settings.__dict__["factor"] = value
        yield f


@change
def an_argument_of_a_partial() -> Changed:
    for value in VALUES:
        yield functools.partial(jnp.multiply, value)


TWICE: dict[str, Callable[[Iterator[Function], Function], Any]] = {
    "run": lambda given, mark: [mark(f)(jnp.float32(0.5)) for f in given],
    "differentiated": lambda given, mark: [
        jax.grad(mark(f))(jnp.float32(0.5)) for f in given
    ],
    "in one program": lambda given, mark: jax.jit(
        lambda x: [mark(f)(x) for f in given]
    )(jnp.float32(0.5)),
}


@pytest.mark.parametrize(
    ("mark", "way", "change"),
    [
        pytest.param(mark, way, change, marks=() if fast else pytest.mark.slow)
        for mark in ("checkpoint", "checkpointed", "Checkpointed")
        for way in TWICE
        for change in CHANGES
        for fast in [(mark, way) in (("checkpoint", "run"), ("Checkpointed", "run"))]
    ],
)
def test_a_function_whose_surroundings_changed_is_traced_again(
    mark: str, way: str, change: Callable[[], Changed]
) -> None:
    known: dict[Any, Function] = {}

    def marked(f: Function) -> Function:
        # The same mark for the same function, as where it is a decorator.
        return known.setdefault(f, MARKS[mark](f))

    assert_equal(TWICE[way](change(), marked), TWICE[way](change(), lambda f: f), 1e-6)


# What goes on from call to call in one program ---------------------------------------


def drawn(source: Any) -> Function:
    return lambda x: x * source.random()


def taken(factors: Iterator[float]) -> Function:
    return lambda x: x * next(factors)


def collected() -> Function:
    held: list[Any] = []

    def f(x: Any) -> Any:
        held.append(1.0)
        return x * len(held)

    return f


GOING_ON: dict[str, Callable[[], Function]] = {
    "Python's random numbers": lambda: drawn(random.Random(3)),
    "NumPy's random numbers": lambda: drawn(np.random.default_rng(3)),
    "an iterator": lambda: taken(iter([2.0, 3.0, 4.0, 5.0])),
    "a list that grows": collected,
}


@pytest.mark.parametrize("call", ["run", pytest.param("both", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", GOING_ON)
@pytest.mark.parametrize("mark", ["checkpoint", "checkpointed", "Checkpointed"])
def test_what_goes_on_from_call_to_call_does_so(
    mark: str, name: str, call: str
) -> None:
    x, made = jnp.float32(0.5), GOING_ON[name]
    assert_equal(CALLS[call](MARKS[mark](made()), x), CALLS[call](made(), x), 1e-6)


@pytest.mark.parametrize("mark", MARKS)
def test_closed_over_tracers_are_told_apart(mark: str) -> None:
    """One function, which closes over what a loop in Python goes through."""

    def loss(ws: Any, wrap: Function) -> Any:
        w = ws[0]
        layer = wrap(lambda x: jnp.sin(x) * w)
        x = layer(jnp.float32(0.5))
        w = ws[1]
        x = layer(layer(x))
        w = ws[2]
        return layer(x)

    ws = [jnp.float32(1.5), jnp.float32(-0.5), jnp.float32(0.25)]
    for run in (lambda f: f, jax.jit):
        got = run(jax.grad(lambda ws: loss(ws, MARKS[mark])))(ws)
        assert_equal(got, jax.grad(lambda ws: loss(ws, lambda f: f))(ws), 1e-5)


def test_a_function_that_closes_over_a_tracer_is_traced_once() -> None:
    traces = [0]

    def loss(w: Any) -> Any:
        @retape.jax.checkpoint
        def layer(x: Any) -> Any:
            traces[0] += 1
            return jnp.sin(x) * w

        return several(layer, jnp.float32(0.5))

    jax.jit(jax.grad(loss))(jnp.float32(1.5))
    assert traces == [1]


def test_a_gradient_of_a_loop_is_a_handful_of_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The function, its blocks, their derivatives and the sweep: one trace each."""
    make, traces = jax.make_jaxpr, [0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        traces[0] += 1
        return make(*args, **kwargs)

    def halved(x: Any) -> Any:
        return jnp.sum(lax.while_loop(lambda v: jnp.sum(v) > 1, lambda v: v / 2, x))

    monkeypatch.setattr(jax, "make_jaxpr", counted)
    gradient = retape.jax.grad(halved, plan=retape.fixed_space(snapshots=20))
    jax.jit(gradient).trace(jnp.ones(16))
    assert traces[0] == 4


def test_tracers_of_an_older_trace_are_not_used() -> None:
    held: dict[str, Any] = {}
    layer = retape.jax.checkpoint(lambda x: x * held["w"])

    def loss(w: Any) -> Any:
        held["w"] = w
        return layer(jnp.float32(2.0)) + lax.cos(w)

    for w in (0.5, 0.75):
        assert_equal(jax.grad(loss)(w), jnp.float32(2.0 - np.sin(w)), 1e-6)
