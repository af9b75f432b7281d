"""The intermediate form on small programs: its checker, liveness, places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.seams import Block, Jump, Label, Lit, Loop, Var


def flat(fun: Callable[..., Any], *args: Any) -> Any:
    return seams.form_after("lower_jaxpr", fun, *args)


def places(fun: Callable[..., Any], *args: Any) -> Any:
    return seams.form_after("allocate", fun, *args)[1]


def climb(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: v < 5.0, lambda v: v * 1.5 + x, x)


def two_in_turn(x: Any) -> Any:
    """`y` is needed by the first loop only, `z` by the second only."""
    y = jax.lax.while_loop(lambda v: v < 5.0, lambda v: v * 1.5, x)
    return jax.lax.while_loop(lambda v: v < 9.0, lambda v: v * 1.2, jnp.sin(y))


def scanned(x: Any) -> Any:
    c, ys = jax.lax.scan(lambda c, a: (c * a, c), x, jnp.arange(1.0, 6.0))
    return c + jax.lax.while_loop(lambda v: v < 5.0, lambda v: v * 1.5, ys[0])


# Blocks -------------------------------------------------------------------------------


def test_a_while_is_three_blocks() -> None:
    program = flat(climb, 0.5)
    before, loop, after = program.items
    assert isinstance(before, Block)
    assert isinstance(loop, Loop)
    assert isinstance(after, Block)
    (body,) = loop.items
    assert isinstance(body, Block)
    # Rotated: the test stands before the loop and again at the end of its body.
    assert before.next.targets == body.next.targets == (after.label, body.label)
    assert after.next.targets == ()
    assert program.length is None


def test_lengths_that_the_program_fixes() -> None:
    def nest(x: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            return jax.lax.fori_loop(0, 3, lambda i, d: jnp.sin(d), c), None

        return jax.lax.scan(outer, x, None, length=5)[0]

    # Before, five times (before the inner loop, three turns, after it), after.
    assert flat(nest, 0.5).length == 1 + 5 * (1 + 3 + 1) + 1
    assert flat(jnp.sin, 0.5).length == 1
    assert flat(two_in_turn, 0.5).length is None


def test_what_carries_no_derivative_stays_whole() -> None:
    def fun(x: Any) -> Any:
        n = jax.lax.while_loop(lambda i: i < 9, lambda i: i + 2, 0)
        return x * n

    assert len(list(seams.blocks_of(flat(fun, 0.5).items))) == 1


def test_activity_is_a_least_fixed_point() -> None:
    def rotate(x: Any) -> Any:
        body = lambda c: (c[1], c[2], c[3], c[3], c[4] + 1)  # noqa: E731
        start = (1.0, 2.0, 3.0, x, 0)
        return jax.lax.while_loop(lambda c: c[4] < 9, body, start)

    def apart(x: Any) -> Any:
        body = lambda c: (c[0] * 2, c[1] + 1.0)  # noqa: E731
        return jax.lax.while_loop(lambda c: c[1] < 9, body, (x, 0.0))

    assert active(rotate) == [True] * 4 + [False]
    assert active(apart) == [True, False]


def active(fun: Callable[..., Any]) -> list[bool]:
    return [v.active for v in flat(fun, 0.5).outs]


# The checker ------------------------------------------------------------------------


def the_body(program: Any) -> Block:
    loop = program.items[1]
    assert isinstance(loop, Loop)
    body = loop.items[0]
    assert isinstance(body, Block)
    return body


def jumps_nowhere(program: Any) -> None:
    the_body(program).next = Jump(None, (Label(),))


def label_twice(program: Any) -> None:
    program.items.append(Block(the_body(program).label))


def reads_what_is_not_assigned(program: Any) -> None:
    body = the_body(program)
    (dst,) = body.moves
    body.moves[dst] = Var(dst.aval, dst.active)


def moves_between_types(program: Any) -> None:
    body = the_body(program)
    (dst,) = body.moves
    body.moves[dst] = Lit(np.int32(0), jax.typeof(np.int32(0)))


def assigns_an_operand(program: Any) -> None:
    body = the_body(program)
    body.moves[program.operands[0]] = program.operands[0]


def loses_a_derivative(program: Any) -> None:
    body = the_body(program)
    (dst,) = body.moves
    body.moves[Var(dst.aval, active=False)] = body.moves[dst]


def empty_loop(program: Any) -> None:
    loop = program.items[1]
    assert isinstance(loop, Loop)
    program.items.insert(1, Loop([], 3))


def does_not_end(program: Any) -> None:
    last = program.items[-1]
    assert isinstance(last, Block)
    last.next = Jump(None, (last.label,))


BROKEN = [
    (jumps_nowhere, "jumps nowhere"),
    (label_twice, "two blocks with one label"),
    (reads_what_is_not_assigned, "assigned nowhere"),
    (moves_between_types, "move of"),
    (assigns_an_operand, "an operand is assigned"),
    (loses_a_derivative, "a derivative is lost"),
    (empty_loop, "an empty loop"),
    (does_not_end, "the last block must end the run"),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN, ids=lambda v: str(v)[:24])
def test_broken_programs_are_refused(spoil: Any, message: str) -> None:
    flat(climb, 0.5)
    lie = seams.lying("lower_jaxpr", lambda made, *_: spoil(made[0]))
    with lie, pytest.raises(AssertionError, match=message):
        flat(climb, 0.5)


def both(x: Any) -> Any:
    body = lambda c: (c[1] * 1.1, c[0] + x)  # noqa: E731
    a, b = jax.lax.while_loop(lambda c: c[0] < 5.0, body, (x, 2 * x))
    return a + b


# Places -----------------------------------------------------------------------------


def closed_over(x: Any) -> Any:
    big = np.ones(1000)
    body = lambda v: v * 1.5 + jnp.sum(big)  # noqa: E731
    return jax.lax.while_loop(lambda v: v < 5.0, body, x)


@pytest.mark.parametrize(
    ("fun", "registers"),
    [
        # Variables that never live together share a place; those that do have two.
        (two_in_turn, 1),
        (both, 2),
        # Arrays that are closed over are operands.
        (closed_over, 1),
    ],
)
def test_a_capsule_holds_the_counter_and_the_registers(
    fun: Callable[..., Any], registers: int
) -> None:
    layout = places(fun, 0.5)
    assert len(layout.places("register")) == registers
    assert layout.capsule_bytes() == 4 + 8 * registers


def test_stacked_rows_are_kept_beside_the_capsules() -> None:
    layout = places(scanned, 0.5)
    kept = [layout.avals[p].shape for p in layout.places("resident")]
    assert (5,) in kept
    assert all(layout.avals[p].shape == () for p in layout.places("register"))


# Code ---------------------------------------------------------------------------------


def handed_down(x: Any) -> Any:
    """The outer loop hands `x` to the inner one and takes it back."""

    def inner(c: Any) -> Any:
        return c[0] + 1, 1.5 * c[1]

    def outer(c: Any) -> Any:
        _, x = jax.lax.while_loop(lambda c: c[0] < c[1][0], inner, (0.0, c[1]))
        return c[0] + 1, x

    return jax.lax.while_loop(lambda c: c[0] < 3, outer, (0, x))[1]


def exchanged(x: Any) -> Any:
    """Two values change places in every turn: neither stays where it is."""
    turns = jnp.int32(6 * x)
    turn = lambda c: (c[0] + 1, c[2], c[1])  # noqa: E731
    return jax.lax.while_loop(lambda c: c[0] < turns, turn, (0, x, jnp.sin(x)))[1]


def test_what_stays_in_its_place_is_not_assigned() -> None:
    compiled = seams.compiled(handed_down, np.ones(3, np.float32))
    passing = [
        t for t in compiled.taped.values() if not t.has_derivative and t.code.outs
    ]
    # The head of the outer loop's body and its tail have counters to assign; `x` goes
    # through both.
    assert len(passing) == 2
    assert not any(v.active for t in passing for v in t.code.outs)


def test_what_changes_places_is_assigned() -> None:
    compiled = seams.compiled(exchanged, 0.5)
    (loop,) = (i for i in compiled.items if isinstance(i, Loop))
    code = compiled.code[next(seams.blocks_of([loop])).label]
    assert sum(v.active for v in code.outs) == 2
    assert float(retape.jax.grad(exchanged)(0.5)) == pytest.approx(np.cos(0.5))


def test_an_output_is_in_no_snapshot() -> None:
    """What only the last block assigns, nothing is resumed from."""

    def fun(x: Any) -> Any:
        return jnp.outer(*[jax.lax.while_loop(lambda v: v[0] < 9, jnp.exp, x)] * 2)

    layout = seams.compiled(fun, jnp.ones(4)).layout
    assert layout.capsule_bytes() >= layout.snapshot_bytes() + 16 * 8
    assert layout.snapshot_bytes() == 4 + 4 * 8
