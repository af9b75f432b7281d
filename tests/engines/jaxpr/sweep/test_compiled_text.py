"""What XLA made of a sweep: its memory, and how often it copies arrays.

A copy of a snapshot buffer on every turn would be right, and a hundred times slower;
only the compiled program tells. The sizes are such that no two arrays are taken for
one another.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.jax

pytestmark = pytest.mark.release

STATE, SNAPSHOTS, STAGE = 1009, 7, 5
PLAN = retape.fixed_space(snapshots=SNAPSHOTS, stage=STAGE)


# A test that looks at the state as well: its trip count cannot be proved.


def known(x: Any) -> Any:
    return jnp.sum(lax.fori_loop(0, 400, lambda i, v: jnp.sin(v) * 1.1, x) ** 2)


def unknown(x: Any) -> Any:
    turn = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.1)  # noqa: E731
    going = lambda c: (c[0] < 400) & (c[1][0] < 5.0)  # noqa: E731
    return jnp.sum(lax.while_loop(going, turn, (0, x))[1] ** 2)


def nested(x: Any) -> Any:
    def outer(c: Any) -> Any:
        inner = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.1)  # noqa: E731
        going = lambda v: (v[0] < 20) & (v[1][0] < 5.0)  # noqa: E731
        return c[0] + 1, lax.while_loop(going, inner, (0, c[1]))[1]

    return jnp.sum(lax.while_loop(lambda c: c[0] < 20, outer, (0, x))[1] ** 2)


PROGRAMS = {"known": known, "unknown": unknown, "nested": nested}


@pytest.fixture(scope="module", params=PROGRAMS)
def compiled(request: pytest.FixtureRequest) -> Any:
    with jax.enable_x64(True):
        gradient = jax.jit(retape.jax.grad(PROGRAMS[request.param], plan=PLAN))
        return gradient.lower(jnp.ones(STATE)).compile()


def copies(text: str) -> Counter[str]:
    """How many `copy` instructions there are for each shape."""
    return Counter(re.findall(r"= (\w+\[[\d,]*\])\S* copy\(", text))


@pytest.mark.usefixtures("opened")
def test_no_buffer_of_states_is_copied_in_a_loop(compiled: Any) -> None:
    """Snapshots and tape are changed in place; those of the entry do not count."""
    found = copies(inner_computations(compiled.as_text()))
    buffers = {s for s in found if f",{STATE}]" in s}
    assert not buffers, found


def inner_computations(text: str) -> str:
    """All computations but those that run once: the first, and the one kernel."""
    return re.sub(r"(?ms)^(ENTRY |%retape_kernel[.\d]* \().*?^}", "", text)


def test_states_are_seldom_copied(compiled: Any) -> None:
    """XLA copies a register where the loop that holds it and the next one differ."""
    found = copies(inner_computations(compiled.as_text()))
    assert found[f"f64[{STATE}]"] <= 11, found


def test_the_copies_of_a_poor_program_are_found() -> None:
    """A buffer is copied that takes the place of another, which is read still."""

    def poor(buffer: Any) -> Any:
        def body(c: Any) -> Any:
            i, a, b = c
            return i + 1, b.at[i % SNAPSHOTS].add(jnp.sin(a[0])), a

        return lax.while_loop(lambda c: c[0] < 100, body, (0, buffer, 2 * buffer))[1]

    text = jax.jit(poor).lower(jnp.ones((SNAPSHOTS, STATE))).compile().as_text()
    assert text is not None
    assert copies(inner_computations(text))[f"f64[{SNAPSHOTS},{STATE}]"] > 0


def test_memory_is_snapshots_tape_and_a_few_states(compiled: Any) -> None:
    analysis = compiled.memory_analysis()
    states = analysis.temp_size_in_bytes / (8 * STATE)
    assert SNAPSHOTS + STAGE <= states <= SNAPSHOTS + STAGE + 6


# A derivative of a derivative --------------------------------------------------------


def simulate(x: Any, steps: Any) -> Any:
    turn = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.1 + 0.1 * x)  # noqa: E731
    return jnp.sum(lax.while_loop(lambda c: c[0] < steps, turn, (0, x))[1] ** 2)


def stored(x: Any, steps: int) -> Any:
    turn = lambda i, v: jnp.sin(v) * 1.1 + 0.1 * x  # noqa: E731
    return jnp.sum(lax.fori_loop(0, steps, turn, x) ** 2)


@pytest.mark.slow
def test_a_gradient_of_a_gradient_in_sublinear_memory() -> None:
    """Split points fall inside the inner derivative (the paper's Section 7.3).

    One compiled program serves any number of steps, so its memory cannot depend on it;
    storing everything takes more the more steps there are.
    """
    x = jnp.linspace(0.1, 1.0, STATE)
    plan = retape.fixed_space(snapshots=3, stage=2)

    def inner(x: Any, steps: Any) -> Any:
        return jnp.sum(jnp.cos(retape.jax.grad(simulate, plan=plan)(x, steps)))

    outer = jax.jit(retape.jax.grad(inner, plan=plan)).lower(x, 100).compile()
    plain = jax.grad(lambda x: jnp.sum(jnp.cos(jax.grad(stored)(x, 100))))
    everything = jax.jit(plain).lower(x).compile()
    want = everything(x)
    assert float(jnp.max(jnp.abs(outer(x, 100) - want)) / jnp.max(jnp.abs(want))) < 1e-9
    ours, all_of_it = (
        c.memory_analysis().temp_size_in_bytes for c in (outer, everything)
    )
    assert all_of_it > 2 * 100 * 8 * STATE
    assert ours < all_of_it / 3


@pytest.mark.parametrize(
    ("size", "times", "copies"), [(100, 1, 1), (5000, 1, 2), (1000, 1, 1), (1000, 5, 2)]
)
def test_small_arrays_are_advanced_by_the_taping_code(
    size: int, times: int, copies: int
) -> None:
    """Not where they are large, or many in each step."""

    def step(x: Any) -> Any:
        for _ in range(times):
            x = jnp.sin(x) * 1.01
        return x

    def loss(x: Any) -> Any:
        body = lambda c: (c[0] + 1, step(c[1]))  # noqa: E731
        return jnp.sum(jax.lax.while_loop(lambda c: c[1][0] < 9, body, (0, x))[1])

    x = jnp.linspace(1.0, 2.0, size)
    plan = retape.fixed_space(snapshots=3, stage=4)
    text = str(jax.make_jaxpr(retape.jax.grad(loss, plan=plan))(x))
    assert text.count("= sin ") == copies * times


# What is done once ----------------------------------------------------------------


def fewest_loops(text: str, name: str) -> int:
    """In how many loops an operation of the optimised program stands, at least."""
    bodies: dict[str, list[str]] = {}
    for found in re.finditer(r"(?ms)^(?:ENTRY )?(%[\w.-]+) \(.*?^}", text):
        bodies[found[1]] = found[0].splitlines()[1:]
    (entry,) = re.findall(r"(?m)^ENTRY (%[\w.-]+)", text)
    depth, todo = {entry: 0}, [entry]
    while todo:
        here = todo.pop()
        for line in bodies[here]:
            more = int(" while(" in line)
            for called in {v for v in re.findall(r"%[\w.-]+", line) if v in bodies}:
                if depth[here] + more < depth.get(called, 99):
                    depth[called] = depth[here] + more
                    todo.append(called)
    lines = [(d, line) for c, d in depth.items() for line in bodies[c]]
    return min(d for d, line in lines if f" {name}(" in line)


def rows_of(x: Any) -> Any:
    def turn(c: Any) -> Any:
        i, v, rows = c
        return i + 1, jnp.sin(v) * 1.1, rows.at[i].set(v)

    going = lambda c: (c[0] < 50) & (c[1][0] < 5.0)  # noqa: E731
    return lax.while_loop(going, turn, (0, x, jnp.zeros((50, STATE))))[2]


def rounded(rows: Any) -> Any:
    """The pullback begins with the integer part again: that is cheap."""
    return jnp.sum(jnp.maximum((jnp.floor(rows) - 1) * (rows - 0.5), 0))


ENDS = {
    "forwards": (lambda rows: jnp.sum(jnp.tanh(rows)), "tanh"),
    "backwards": (rounded, "floor"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_what_a_program_ends_with_is_not_computed_at_every_turn(name: str) -> None:
    """In the loop of all turns there is one that goes round when a block runs."""
    end, operation = ENDS[name]
    gradient = jax.jit(retape.jax.grad(lambda x: end(rows_of(x)), plan=PLAN))
    text = gradient.lower(jnp.ones(STATE)).compile().as_text()
    assert text is not None
    assert fewest_loops(text, operation) >= 2


def test_an_operation_before_a_loop_is_found_there() -> None:
    def poor(x: Any) -> Any:
        turn = lambda c: (c[0] + 1, jnp.sin(c[1]) + jnp.tanh(x))  # noqa: E731
        return lax.while_loop(lambda c: c[1][0] < 9, turn, (0, x))[1]

    text = jax.jit(poor).lower(jnp.ones(STATE)).compile().as_text()
    assert text is not None
    assert fewest_loops(text, "tanh") == 0
    assert fewest_loops(text, "sine") == 1
