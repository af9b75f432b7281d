"""`remat_scan` against a Python loop over the layers and against `nnx.scan`."""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import retape
import retape.nnx
from retape.jax import policies
from tests.nnx.stacks import (
    WIDTH,
    Count,
    Tanh,
    batch,
    difference,
    loop,
    stack,
    waves,
    without_address,
)

CLOSE = 1e-12


def run(scan: Any, layers: Any, x: jax.Array, **options: Any) -> Any:
    @scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry, **options)
    def forward(x: jax.Array, layer: Any) -> jax.Array:
        return layer(x)

    return forward(x, layers)


def swept(scan: Any, layers: Any, **options: Any) -> Any:
    """Value, gradients of weights and input, and the layers' state afterwards."""
    x = batch()

    def loss(layers: Any, x: jax.Array) -> jax.Array:
        return jnp.sum(run(scan, layers, x, **options) ** 2)

    value, gradients = nnx.jit(nnx.value_and_grad(loss, argnums=(0, 1)))(layers, x)
    return value, gradients, nnx.split(layers)[1]


class Counting(Tanh):
    """Weights, and an integer that every layer changes."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.count = Count(jnp.arange(layers))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.count[...] += 1
        return super().__call__(x) + self.count[...]


@lru_cache(maxsize=2)
def by_nnx_scan(reverse: bool = False) -> Any:
    return swept(nnx.scan, Counting(7), reverse=reverse)


def unrolled(length: int) -> Any:
    """The same by a Python loop and `jax.grad`, with no scan and no NNX transform."""
    graph, params, rest = nnx.split(stack(length), nnx.Param, ...)

    @jax.jit
    def gradient(params: Any, rest: Any, x: jax.Array) -> Any:
        def loss(params: Any, x: jax.Array) -> Any:
            y, after = loop(nnx.merge(graph, params, rest), x)
            return jnp.sum(y**2), jax.tree.map(lambda *a: jnp.stack(a), *after)

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)

    (value, after), gradients = gradient(params, rest, batch())
    return value, gradients, after


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 7])
def test_values_gradients_and_state_are_those_of_a_python_loop(length: int) -> None:
    ours = swept(retape.nnx.remat_scan, stack(length))
    assert difference(ours, unrolled(length)) < CLOSE


@pytest.mark.slow(
    "{'plan': retape.fixed_space(snapshots=2)}",
    "{'plan': retape.fixed_space(snapshots=2), 'offload': 'host'}",
)
@pytest.mark.parametrize(
    "options",
    [
        {"levels": 1, "length": 7},
        {"levels": 3, "unroll": 3},
        {"segment_length": 1, "unroll": True, "_split_transpose": True},
        {"segment_length": 3, "reverse": True},
        {"segment_length": 100, "graph": True, "graph_updates": False},
        {"policy": jax.checkpoint_policies.dots_saveable},
        {"policy": policies.selective(), "levels": 3},
        {"segment_length": 3, "offload": "host"},
        {"plan": retape.fixed_space(snapshots=2)},
        {"plan": retape.fixed_space(snapshots=2), "offload": "host"},
    ],
    ids=without_address,
)
def test_every_option_gives_what_nnx_scan_gives(options: dict[str, Any]) -> None:
    expected = by_nnx_scan(options.get("reverse", False))
    ours = swept(retape.nnx.remat_scan, Counting(7), **options)
    assert difference(ours, expected) < CLOSE


def test_every_argument_of_nnx_scan_is_one_of_ours() -> None:
    theirs, ours = (
        inspect.signature(f).parameters for f in (nnx.scan, retape.nnx.remat_scan)
    )
    assert len(theirs) > 8 and theirs.keys() <= ours.keys()
    for name in theirs.keys() - {"f"}:
        assert ours[name].default == theirs[name].default, name
        assert ours[name].kind == theirs[name].kind


def test_the_comparison_sees_a_small_lie() -> None:
    value, gradients, after = by_nnx_scan()
    assert difference((value, gradients, after), (value + 1e-9, gradients, after)) > 0
    assert difference(by_nnx_scan(), by_nnx_scan(reverse=True)) > CLOSE


# Forms of the call, each against nnx.scan -----------------------------------------


class Scaled(nnx.Module):
    """A weight of its own, a weight for all layers, a statistic that is handed on."""

    def __init__(self, layers: int) -> None:
        self.own = nnx.Param(waves(layers, WIDTH))
        self.shared = nnx.BatchStat(jnp.float64(0.7))
        self.seen = Count(jnp.float64(0.1))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.seen[...] += jnp.sum(x)
        return jnp.tanh(x * self.own + self.shared * self.seen)


def _one_of_each_axis(scan: Any) -> Any:
    """Own weights scanned, a shared one broadcast, a statistic carried."""
    layers = Scaled(5)
    axes = nnx.StateAxes({nnx.Param: 0, nnx.BatchStat: None, Count: nnx.Carry})

    def loss(layers: Any, x: jax.Array) -> jax.Array:
        f = scan(
            lambda x, layer: layer(x), in_axes=(nnx.Carry, axes), out_axes=nnx.Carry
        )
        return jnp.sum(f(x, layers))

    kinds = nnx.DiffState(0, (nnx.Param, nnx.BatchStat))
    gradient = nnx.jit(nnx.grad(loss, argnums=(kinds, 1)))
    return gradient(layers, batch()), nnx.split(layers)[1]


def _slices_and_outputs(scan: Any) -> Any:
    """A slice per layer along axis 1, a constant, and an output along axis 1."""

    @scan(in_axes=(nnx.Carry, 0, 1, None), out_axes=(nnx.Carry, 1))
    def forward(x: Any, layer: Any, slice_: Any, shift: Any) -> Any:
        y = layer(x["h"] + slice_["s"][:, None] * shift)
        return {"h": y, "n": x["n"] + 1}, (y.sum(0), y.sum(1))

    def loss(layers: Any, x: jax.Array, slices: jax.Array, shift: float) -> Any:
        slices = {"s": slices}
        end, (sums, others) = forward({"h": x, "n": 0}, layers, slices, shift)
        total = jnp.sum(end["h"]) + jnp.sum(sums**2) + jnp.sum(others**3)
        return total, (end["n"], sums)

    gradient = nnx.jit(nnx.grad(loss, argnums=(0, 1, 2, 3), has_aux=True))
    return gradient(Tanh(7), batch(), waves(4, 7), 0.5)


def _noisy(scan: Any, axis: Any, split: Any) -> Any:
    """`nnx.Rngs` beside the layers."""

    @split
    @scan(in_axes=(nnx.Carry, 0, axis), out_axes=nnx.Carry)
    def forward(x: jax.Array, layer: Any, rngs: nnx.Rngs) -> jax.Array:
        return layer(x) * rngs.noise.uniform(x.shape)

    rngs = nnx.Rngs(11, noise=5)
    loss = lambda layers, x, rngs: jnp.sum(forward(x, layers, rngs))  # noqa: E731
    return nnx.jit(nnx.grad(loss))(Tanh(7), batch(), rngs), nnx.split(rngs)[1]


def _random_numbers_of_its_own(scan: Any) -> Any:
    return _noisy(scan, 0, nnx.split_rngs(splits=7))


def _streams_for_all_layers(scan: Any) -> Any:
    """Nobody split them: every layer draws the same numbers."""
    return _noisy(scan, None, lambda f: f)


def _no_carry(scan: Any) -> Any:
    f = scan(lambda layer, x: layer(x), in_axes=(0, 0), out_axes=0)
    loss = lambda layers, x: jnp.sum(f(layers, x) ** 2)  # noqa: E731
    return nnx.jit(nnx.grad(loss))(Tanh(5), waves(5, 4, WIDTH))


def _nothing_scanned(scan: Any) -> Any:
    axes = {"in_axes": nnx.Carry, "out_axes": nnx.Carry}
    f = scan(lambda x: jnp.sin(x) * 1.1, length=11, **axes)
    return jax.jit(jax.value_and_grad(lambda x: jnp.sum(f(x))))(batch())


class Cell(nnx.Module):
    def __init__(self) -> None:
        self.weight = nnx.Param(waves(WIDTH))
        self.mean = nnx.BatchStat(jnp.float64(0.0))


def _a_module_is_carried(scan: Any) -> Any:
    """The carry is a module that each step changes."""

    @scan(in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def forward(cell: Any, x: jax.Array) -> Any:
        cell.mean[...] = 0.9 * cell.mean + 0.1 * jnp.sum(cell.weight * x)
        return cell, cell.mean[...] * x

    def loss(cell: Any, xs: jax.Array) -> jax.Array:
        cell, ys = forward(cell, xs)
        return jnp.sum(ys) + cell.mean[...]

    cell = Cell()
    gradient = nnx.jit(nnx.grad(loss, argnums=(0, 1)))
    return gradient(cell, waves(6, 4, WIDTH)), nnx.split(cell)[1]


def _one_module_twice(scan: Any) -> Any:
    """The same stack is passed as two arguments: its weights stay tied."""

    @scan(in_axes=(nnx.Carry, 0, 0), out_axes=nnx.Carry)
    def forward(x: jax.Array, a: Any, b: Any) -> jax.Array:
        assert a is b
        return a(x) + b.weight[0]

    loss = lambda m, x: jnp.sum(forward(x, m, m))  # noqa: E731
    return nnx.jit(nnx.grad(loss))(Tanh(5), batch())


def _new_state(scan: Any) -> Any:
    """A layer makes state that was not there."""

    @scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def forward(x: jax.Array, layer: Any) -> jax.Array:
        y = layer(x)
        layer.mean = nnx.Intermediate(y.mean())
        return y

    layers = Tanh(5)
    return nnx.jit(forward)(batch(), layers), layers.mean[...]


class Model(nnx.Module):
    def __init__(self, scan: Any) -> None:
        self.layers = Tanh(5)
        # A method as NNX's own guide has it, decorated in the body of the class.
        self.forward = nnx.static(
            scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)(Model.one)
        )

    def one(self, x: jax.Array) -> jax.Array:
        return self.layers(x)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.forward(self, x)


def _a_method(scan: Any) -> Any:
    loss = lambda model, x: jnp.sum(model(x))  # noqa: E731
    return nnx.jit(nnx.grad(loss))(Model(scan), batch())


def _named_arguments(scan: Any) -> Any:
    @scan(in_axes=(nnx.Carry, 0, None), out_axes=nnx.Carry)
    def forward(x: jax.Array, layer: Any, scale: Any = 2.0) -> jax.Array:
        return layer(x) * scale

    return forward(batch(), layer=Tanh(5), scale=0.5)


class Deep(nnx.Module):
    """A layer whose parts are layers."""

    def __init__(self, scan: Any) -> None:
        self.inner = Tanh(1)
        self.inner.weight = nnx.Param(waves(4, 3, WIDTH, WIDTH))
        self.scan = scan

    def __call__(self, x: jax.Array) -> jax.Array:
        return run(self.scan, self.inner, x)


def _scans_in_scans(scan: Any) -> Any:
    loss = lambda deep, x: jnp.sum(run(scan, deep, x))  # noqa: E731
    return nnx.jit(nnx.grad(loss))(Deep(scan), batch())


def _closed_over(scan: Any) -> Any:
    """The layer function closes over a value that is differentiated."""

    def loss(scale: jax.Array, layers: Any) -> jax.Array:
        def f(x: jax.Array, layer: Any) -> jax.Array:
            return layer(x) * scale

        forward = scan(f, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return jnp.sum(forward(batch(), layers))

    return nnx.jit(nnx.grad(loss, argnums=(0, 1)))(jnp.float64(0.8), Tanh(5))


def _in_tree_mode(scan: Any) -> Any:
    axes = {"in_axes": (nnx.Carry, 0), "out_axes": nnx.Carry}
    f = scan(lambda x, layer: layer(x), graph=False, **axes)
    loss = lambda layers, x: jnp.sum(f(x, layers) ** 2)  # noqa: E731
    return nnx.jit(nnx.grad(loss, graph=False), graph=False)(Tanh(5), batch())


def _no_layers(scan: Any) -> Any:
    return run(scan, Tanh(0), batch())


def _streams_handed_on(scan: Any) -> Any:
    """`nnx.Rngs` in the carry: one stream, from layer to layer."""

    @scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def forward(both: Any, layer: Any) -> Any:
        x, rngs = both
        return layer(x) * rngs.noise.uniform(x.shape), rngs

    rngs = nnx.Rngs(noise=5)
    loss = lambda layers, x, rngs: jnp.sum(forward((x, rngs), layers)[0])  # noqa: E731
    return nnx.jit(nnx.grad(loss))(Tanh(7), batch(), rngs), nnx.split(rngs)[1]


def _squared(scan: Any, x: jax.Array) -> jax.Array:
    return jnp.sum(run(scan, Tanh(5), x) ** 2)


def _for_a_batch(scan: Any) -> Any:
    loss = lambda layers, x: jnp.sum(run(scan, layers, x) ** 2)  # noqa: E731
    gradients = nnx.vmap(nnx.grad(loss), in_axes=(None, 0), out_axes=0)
    return nnx.jit(gradients)(Tanh(5), waves(3, 4, WIDTH))


def _forwards(scan: Any) -> Any:
    along = partial(jax.jvp, partial(_squared, scan))
    return jax.jit(along)((batch(),), (waves(4, WIDTH),))


def _twice(scan: Any) -> Any:
    slope = jax.grad(partial(_squared, scan))
    return jax.jit(jax.grad(lambda x: jnp.sum(slope(x) ** 2)))(batch())


def _shapes_alone(scan: Any) -> Any:
    out = nnx.eval_shape(partial(run, scan), Tanh(5), batch())
    return jnp.zeros(out.shape, out.dtype)


FORMS = [
    _streams_for_all_layers,
    _streams_handed_on,
    _one_of_each_axis,
    _slices_and_outputs,
    _random_numbers_of_its_own,
    _no_carry,
    _nothing_scanned,
    _a_module_is_carried,
    _one_module_twice,
    _new_state,
    _a_method,
    _named_arguments,
    _scans_in_scans,
    _closed_over,
    _in_tree_mode,
    _no_layers,
    _for_a_batch,
    _forwards,
    _twice,
    _shapes_alone,
]


@pytest.mark.slow(
    "random_numbers_of_its_own",
    "slices_and_outputs",
    "scans_in_scans",
    "streams_handed_on",
)
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__.strip("_"))
def test_a_form_of_the_call_gives_what_nnx_scan_gives(form: Any) -> None:
    expected = form(nnx.scan)
    assert jax.tree.leaves(expected)
    assert difference(form(retape.nnx.remat_scan), expected) < CLOSE
