"""The device's form of a sweep: the host's numbers, in loops of known trip count."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import assert_close

BY_NAME = {f.name: f for f in FORMS}


def assert_same_in_both_forms(fun: Any, args: Any, plan: Any) -> None:
    host = retape.jax.measure(fun, *args, plan=plan, loops="host")
    device = retape.jax.measure(fun, *args, plan=plan, loops="device")
    assert_close(device.value, host.value)
    assert_close(device.gradient, host.gradient)
    kept = ("length", "advances", "stores", "peak_snapshots", "longest_stage")
    for name in kept:
        assert getattr(device.report, name) == getattr(host.report, name), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("while_in_while", 2),
        ("halt_on_data", 1),
        ("nested_scans", 5),
        ("cond_with_a_loop_in_a_loop", 2),
        ("ys_feed_a_later_loop", 3),
    ],
)
@pytest.mark.usefixtures("opened")
def test_a_gradient_and_its_counts(name: str, stage: int) -> None:
    form = BY_NAME[name]
    plan = retape.fixed_space(snapshots=2, stage=stage)
    assert_same_in_both_forms(form.with_loops(jax.lax), form.arguments(), plan)


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(
    "name", ["two_inner_loops", "loops_in_sequence", "zero_trips", "ys_feed_a_while"]
)
def test_a_run_in_chunks_returns_what_the_program_does(name: str) -> None:
    run = BY_NAME[name].with_loops(jax.lax)
    args = BY_NAME[name].arguments()
    chunks = retape.jax.checkpointed(run, loops="device")
    assert_close(jax.jit(chunks)(*args), jnp.asarray(run(*args)))


def simulate(x: jax.Array, n: int = 300) -> jax.Array:
    step = lambda i, x: jnp.sin(x) + 0.1 * x  # noqa: E731
    return jnp.sum(jax.lax.fori_loop(0, n, step, x) ** 2)


def until(x: jax.Array) -> jax.Array:
    """A run of 205 steps, whose length only its end tells."""
    body = lambda s: (s[0] + 1, 1.1 * jnp.cos(s[1]))  # noqa: E731
    more = lambda s: (s[0] < 205) & (jnp.sum(s[1]) < 1e6)  # noqa: E731
    return jnp.sum(jax.lax.while_loop(more, body, (0, x))[1] ** 2)


def nested(x: jax.Array) -> jax.Array:
    """Loops whose lengths only their ends tell, in each of thirty turns."""

    def turn(_: Any, x: jax.Array) -> jax.Array:
        step = lambda s: (s[0] + 1, jnp.sin(s[1]) + 0.1 * x)  # noqa: E731
        more = lambda s: (s[0] < 9) & (s[1][0] < 5)  # noqa: E731
        return jax.lax.while_loop(more, step, (0, x))[1]

    return jnp.sum(jax.lax.fori_loop(0, 30, turn, x) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("fun", [simulate, until, nested])
def test_the_host_hardly_waits(fun: Any) -> None:
    # So large that the inner loop is not taped with the step around it.
    x, plan = jnp.linspace(0.1, 1, 9999), retape.fixed_space(snapshots=8, stage=64)
    _, expected, report = retape.jax.measure(fun, x, plan=plan)
    gradient = retape.jax.grad(fun, plan=plan, loops="device")
    found, waits = retape.jax.count_waits(gradient, x)
    assert_close(found, expected)
    assert waits <= 0.05 * (report.advances + report.taped)
    explained = retape.jax.explain(fun, x, plan=plan, loops="device")
    # Known beforehand where the length is.
    assert explained.waits == (waits if fun is simulate else None)
    assert explained.form == "device" and "waits of the host" in str(explained)


def test_a_rule_with_a_loop_keeps_its_guard() -> None:
    """On values that are none of its it might never end."""

    @jax.custom_vjp
    def root(x: Any) -> Any:
        return jnp.sqrt(x)

    def back(x: Any, d: Any) -> Any:
        far = lambda y: jnp.abs(y * y - x) > 1e-9  # noqa: E731
        return (d / 2 / jax.lax.while_loop(far, lambda y: (y + x / y) / 2, x),)

    root.defvjp(lambda x: (root(x), x), back)

    def run(x: Any) -> Any:
        more = lambda s: s[0] < 9  # noqa: E731
        return jax.lax.while_loop(more, lambda s: (s[0] + 1, root(s[1] + 1)), (0, x))[1]

    assert_same_in_both_forms(run, (2.0,), retape.fixed_space(snapshots=2, stage=4))


def test_the_counter_knows_what_waits() -> None:
    def program(x: Any) -> Any:
        x = jax.lax.while_loop(lambda v: v < 5, lambda v: v + 1, x)  # 5 turns: 6
        x = jax.lax.cond(x > 3, lambda v: v * 2, lambda v: v, x)  # 1
        x, _ = jax.lax.scan(lambda c, _: (c + 1, None), x, None, length=9)  # 0

        def turn(c: Any, r: Any) -> Any:  # three times 3
            c = jax.lax.while_loop(lambda v: v % 3 != 0, lambda v: v + 1, c + 1)
            return c, c * r

        x, ys = jax.lax.scan(turn, x - x % 3, jnp.arange(3), reverse=True)
        return x, ys

    expected = jax.jit(program)(0)
    found, waits = retape.jax.count_waits(program, 0)
    assert [a.tolist() for a in found] == [a.tolist() for a in expected]
    assert waits == 6 + 1 + 3 * 3


def test_the_counter_goes_into_functions_with_rules_of_their_own() -> None:
    @jax.custom_vjp
    def below(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: v > 1, lambda v: v / 2, x)

    below.defvjp(lambda x: (below(x), None), lambda _, d: (d,))
    assert retape.jax.count_waits(lambda x: below(x) + 1, 8.0) == (2.0, 4)
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    parts = jax.shard_map(
        lambda x: jax.lax.while_loop(lambda v: v[0] > 1, lambda v: v / 2, x),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
    )
    with pytest.raises(retape.UnsupportedError, match="Waits inside `shard_map`"):
        retape.jax.count_waits(parts, jnp.ones(1))


@pytest.mark.slow
def test_a_lowering_for_cuda_has_the_devices_form() -> None:
    x = jnp.linspace(0.1, 1, 1000)
    gradient = jax.jit(retape.jax.grad(simulate, plan=retape.fixed_space(snapshots=8)))
    cpu, cuda, both = (
        jax.export.export(gradient, platforms=p)(x)
        for p in (["cpu"], ["cuda"], ["cpu", "cuda"])
    )
    # Each stage has its snapshot, so that no end of a loop depends on a value.
    assert _waiting_loops(cuda.mlir_module()) == 0
    fewer = retape.jax.grad(simulate, plan=retape.fixed_space(snapshots=4, stage=16))
    again = jax.export.export(jax.jit(fewer), platforms=["cuda"])(x)
    assert _waiting_loops(again.mlir_module()) == 1  # chunks to advance
    assert _waiting_loops(cpu.mlir_module()) > 8
    assert _waiting_loops(both.mlir_module()) > 10
    assert_close(both.call(x), gradient(x))
    kept = retape.jax.grad(simulate, plan=retape.fixed_space(snapshots=8), loops="host")
    asked = jax.export.export(jax.jit(kept), platforms=["cuda"])(x)
    assert _waiting_loops(asked.mlir_module()) > 8


def _waiting_loops(module: str) -> int:
    """Loops that are not counted from zero to a constant."""
    parts = module.split("stablehlo.while")[1:]
    tests = (part.split("} do {")[0].split("cond {")[-1] for part in parts)
    return sum(not _is_counted(test) for test in tests)


def _is_counted(test: str) -> bool:
    compared, *others = test.strip().splitlines()
    return "compare LT" in compared and ", %c" in compared and len(others) == 1


def test_a_stage_is_longer_where_the_plan_leaves_it_open() -> None:
    x, plan = jnp.linspace(0.1, 1, 1000), retape.fixed_space(snapshots=8)
    stages = [
        retape.jax.explain(simulate, x, plan=plan, loops=loops).stage
        for loops in ("host", "device")
    ]
    assert stages == [16, 64]
    assert "device" not in repr(retape.jax.explain(simulate, x, loops="device").plan)
