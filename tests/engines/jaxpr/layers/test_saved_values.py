"""The listing of what is kept, against JAX's own and against bytes."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals

import retape
import retape.jax
from retape.jax import checkpoint, policies, saved, scan


def block(h: Any, w: Any) -> Any:
    return jnp.tanh(checkpoint_name(jnp.sin(h) @ w, "product"))


def looped(h: Any, w: Any, **options: Any) -> Any:
    step = lambda h, w: (block(h, w), None)  # noqa: E731
    run = scan if options else lax.scan
    return run(step, h, w, **options)[0].sum()


H = jax.ShapeDtypeStruct((4, 8), jnp.float32)
W = jax.ShapeDtypeStruct((8, 8), jnp.float32)
STACK = jax.ShapeDtypeStruct((12, 8, 8), jnp.float32)
CARRY = 4 * 8 * 4


def reasons(fun: Any, *args: Any) -> list[tuple[str, str, int]]:
    return [(v.why, v.source, v.nbytes) for v in saved(fun, *args)]


def jax_s_own(capsys: Any, fun: Any, *args: Any) -> list[str]:
    """The types that JAX's listing has, in any order."""
    capsys.readouterr()
    print_saved_residuals(fun, *(jnp.ones(a.shape, a.dtype) for a in args))
    text = capsys.readouterr().out
    return sorted(line.split()[0] for line in text.splitlines())


@pytest.mark.parametrize("policy", ["plain", None, "names", "selective"], ids=str)
def test_a_function_keeps_what_jax_says(policy: Any, capsys: Any) -> None:
    ways: dict[Any, Any] = {"names": policies.names(save=["product"])}
    ways["selective"] = policies.selective()
    fun = block
    if policy != "plain":
        fun = checkpoint(block, policy=ways.get(policy))
    assert sorted(v.type for v in saved(fun, H, W)) == jax_s_own(capsys, fun, H, W)


def test_a_value_is_named_with_the_user_s_line() -> None:
    marked = checkpoint(block, policy=policies.names(save=["product"]))
    last = saved(marked, H, W)[-1]
    assert (last.why, last.source, last.name) == ("value", "dot_general", "product")
    assert re.fullmatch(r".*test_saved_values\.py:\d+ \(block\)", last.line)
    assert "value dot_general, named 'product' at " in str(last)


def test_loops_keep_carries_for_each_trip_of_the_outermost() -> None:
    assert reasons(lambda h, w: looped(h, w, levels=1), H, STACK) == [
        ("argument", "w", 12 * 256),
        ("carry", "of 12 trips", 12 * CARRY),
    ]
    found = saved(lambda h, w: looped(h, w, segment_length=4), H, STACK)
    carries = [v for v in found if v.why == "carry"]
    assert [v.nbytes for v in carries] == [3 * CARRY]
    assert "test_saved_values.py" in carries[0].line
    # A plain loop keeps what is inside of each step, and no carry.
    assert {v.why for v in saved(looped, H, STACK)} == {"argument", "value"}


def test_a_plan_s_snapshots_and_tape_are_in_the_list() -> None:
    long = jax.ShapeDtypeStruct((400, 64, 64), jnp.float32)
    wide = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    plan = retape.fixed_space(snapshots=5, stage=10)
    run = retape.jax.checkpointed(looped, plan=plan)
    found = {v.why: v for v in saved(run, wide, long)}
    told = retape.jax.explain(looped, wide, long, plan=plan, argnums=(0, 1))
    assert found["snapshot"].nbytes == 5 * told.capsule_bytes
    assert found["snapshot"].type.startswith("5 x ")
    assert found["tape"].source == "of a stage of 10 steps"
    assert found["tape"].nbytes >= 10 * told.tape_bytes


def test_views_of_arguments_are_told_from_values() -> None:
    def unrolled(h: Any, w: Any) -> Any:
        for i in range(3):
            h = block(h, w[i])
        return h.sum()

    marked = checkpoint(unrolled, policy=policies.every_n(3))
    whys = {v.why for v in saved(marked, H, STACK)}
    assert whys <= {"argument", "view", "value"}
    assert all(v.nbytes == CARRY for v in saved(marked, H, STACK) if v.why == "value")


def test_the_sum_is_of_what_is_kept_beside_arguments() -> None:
    lines = str(saved(block, H, W)).splitlines()
    assert lines[-1].split("  ")[-1] == "beside arguments and constants"
    kept = sum(v.nbytes for v in saved(block, H, W) if v.why == "value")
    assert lines[-1].strip().startswith(f"{kept} B")


def test_paths_into_trees_and_numbers_are_named() -> None:
    def loss(params: Any, scale: Any) -> Any:
        return scale * jnp.sin(params["deep"][0]).sum()

    args = {"deep": [H]}, 2.0
    assert "cos" in {v.source for v in saved(loss, *args)}
    marked = checkpoint(lambda p, *, scale: jnp.sin(p["a"][0] * scale))
    found = saved(marked, {"a": [H]}, scale=2.0)
    assert {v.source for v in found} == {"p['a'][0]", "scale"}


def test_a_line_of_no_user_s_is_empty() -> None:
    x = jax.ShapeDtypeStruct((3,), jnp.float32)
    (kept,) = saved(lax.sin, x)
    assert (kept.source, kept.line) == ("cos", "")
    (kept,) = saved(lambda x: lax.sin(x), x)
    assert "test_saved_values.py" in kept.line
