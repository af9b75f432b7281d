"""Side effects happen once and in order, or are refused with the user's line.

What a plain run of the function does is the expectation, event by event.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=2, stage=1)
"""Steps are run again and again."""
events: list[float] = []


def note(value: Any) -> None:
    events.append(float(value))


ACTS: dict[str, Callable[[Any], Any]] = {
    "debug.callback": lambda v: jax.debug.callback(note, v),
    "debug.callback in order": lambda v: jax.debug.callback(note, v, ordered=True),
    "debug.print in order": lambda v: jax.debug.print("{:.5f}", v, ordered=True),
    "io_callback": lambda v: io_callback(note, None, v),
    "io_callback in order": lambda v: io_callback(note, None, v, ordered=True),
    "nothing": lambda _: None,
}


def counted(step: Any, x: Any, n: int = 7) -> Any:
    return lax.fori_loop(0, n, lambda i, v: step(v), x)


def unknown(step: Any, x: Any, n: int = 7) -> Any:
    """A test whose trip count cannot be proved."""
    turn = lambda c: (c[0] + 1, step(c[1]))  # noqa: E731
    return lax.while_loop(lambda c: (c[0] < n) & (jnp.max(c[1]) < 5), turn, (0, x))[1]


def steps(act: Any, loop: Any = unknown) -> Any:
    def step(v: Any) -> Any:
        act(v)
        return jnp.sin(v) * 1.3

    return lambda x: loop(step, x)


def branch_in_a_scan(act: Any) -> Any:
    some = lambda v: act(v) or v * 0.5  # noqa: E731
    step = lambda v: lax.cond(v > 0.6, some, jnp.sin, v) * 1.4  # noqa: E731
    return lambda x: counted(step, x)


WAYS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: retape.jax.grad(f, plan=PLAN),
    "jit of grad": lambda f: jax.jit(retape.jax.grad(f, plan=PLAN)),
    "jax.grad": lambda f: jax.grad(retape.jax.checkpointed(f, plan=PLAN)),
    "store": lambda f: retape.jax.grad(f, plan=PLAN, store=retape.MemoryStore()),
}
ORDERED = "debug.callback in order"
CASES = [("grad", act, steps) for act in list(ACTS)[:-1]]
CASES += [(way, ORDERED, steps) for way in WAYS if way not in ("grad", "store")]
CASES += [("store", "io_callback in order", steps)]
CASES += [("grad", "io_callback", branch_in_a_scan)]


@pytest.mark.parametrize(("way", "act", "program"), CASES)
def test_effects_happen_once_as_in_a_plain_run(
    way: str, act: str, program: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def happening(call: Any) -> tuple[Any, list[float]]:
        events.clear()
        result = jax.block_until_ready(call(0.7))
        jax.effects_barrier()
        return result, events + [float(v) for v in capfd.readouterr().out.split()]

    loud = program(ACTS[act])
    _, expected = happening(jax.jit(loud))
    slope, found = happening(WAYS[way](loud))
    assert found == expected and 0 < len(expected) <= 7
    silent = (
        program(ACTS["nothing"])
        if program is not steps
        else steps(ACTS["nothing"], counted)
    )
    assert_close(slope, jax.grad(silent)(0.7))


def test_effects_happen_once_for_each_lane() -> None:
    events.clear()
    f = retape.jax.checkpointed(steps(ACTS["debug.callback"]), plan=PLAN)
    jax.vmap(jax.grad(f))(jnp.asarray([0.7, 0.9]))
    jax.effects_barrier()
    assert len(events) == 14


def with_reference(loop: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        total = jax.new_ref(jnp.zeros_like(x))

        def step(v: Any) -> Any:
            total[...] += v**2
            total[0] = total[1] * v[2]
            return jnp.sin(v) * 1.3

        return jnp.sum(loop(step, x, 6) * jax.freeze(total))

    return f


@pytest.mark.slow("counted")
@pytest.mark.parametrize("loop", [counted, unknown])
@pytest.mark.usefixtures("opened")
def test_references_made_inside(loop: Any) -> None:
    x = jnp.asarray([0.3, 0.5, 0.9])
    want = jax.grad(with_reference(counted))(x)
    assert_close(retape.jax.grad(with_reference(loop), plan=PLAN)(x), want)


# What is refused ----------------------------------------------------------------------

OUTSIDE = jax.new_ref(jnp.zeros(()))


def used(v: Any) -> Any:
    return io_callback(np.sin, jax.ShapeDtypeStruct((), v.dtype), v) * 6


def adding(v: Any) -> Any:
    OUTSIDE[...] += v
    return v * 1.5


@jax.custom_vjp
def loud_rule(x: Any) -> Any:
    return jnp.sin(x) + 2 * x


def forwards(x: Any) -> Any:
    jax.debug.print("{}", x)
    return loud_rule(x), x


loud_rule.defvjp(forwards, lambda x, d: (d * jnp.cos(x),))
REFUSED: dict[Callable[[Any], Any], tuple[Any, str]] = {
    used: (
        used,
        "`io_callback` at .*{}.*`IO`.*result the program uses.*`jax.pure_callback` if",
    ),
    adding: (None, "at .*{}.*made outside the function.*inside the function"),
    loud_rule: (None, "`debug_print` at .*{}.*derivative rule"),
}


@pytest.mark.parametrize("step", REFUSED, ids=["used", "outside", "rule"])
@pytest.mark.parametrize("way", ["grad", "checkpointed"])
def test_what_cannot_happen_once_is_refused(step: Any, way: str) -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda v: v < 5, lambda v: step(v), x)

    at, said = REFUSED[step]
    line = (at or f).__code__.co_firstlineno + 1
    place = re.escape(f"{os.path.basename(__file__)}:{line}")
    with pytest.raises(retape.UnsupportedError, match=said.format(place)):
        call = getattr(retape.jax, way)(f)
        call(1.0) if way == "grad" else jax.grad(call)(1.0)


def test_a_line_that_jax_does_not_know_is_said_to_be_unknown() -> None:
    f = lambda x: lax.while_loop(lambda v: v < 5, loud_rule, x)  # noqa: E731
    with pytest.raises(retape.UnsupportedError, match="at a line unknown to JAX is"):
        retape.jax.grad(f)(1.0)
