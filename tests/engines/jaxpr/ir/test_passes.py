"""The intermediate form on small programs: its checker, lengths, snapshots, moves."""

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


def climb(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: v < 5.0, lambda v: v * 1.5 + x, x)


def nest(x: Any) -> Any:
    def outer(c: Any, _: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, d: jnp.sin(d), c), None

    return jax.lax.scan(outer, x, None, length=5)[0]


@pytest.mark.parametrize(
    ("fun", "length"),
    [
        # Before, five times (before the inner loop, three turns, after it), after.
        (nest, 1 + 5 * (1 + 3 + 1) + 1),
        (jnp.sin, 1),
        (climb, None),
    ],
)
def test_lengths_that_the_program_fixes(fun: Any, length: int | None) -> None:
    assert flat(fun, 0.5).length == length


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


def moving(change: Callable[[Any, Any], Any]) -> Any:
    """A move that the loop's body does not make."""

    def lie(program: Any) -> None:
        moves = the_body(program).moves
        (dst,) = moves
        moves |= change(dst, program.operands[0])

    return lie


OF_INTEGERS = Lit(np.int32(0), jax.typeof(np.int32(0)))


def empty_loop(program: Any) -> None:
    program.items.insert(1, Loop([], 3))


def does_not_end(program: Any) -> None:
    last = program.items[-1]
    last.next = Jump(None, (last.label,))


BROKEN: list[tuple[Any, str]] = [
    (jumps_nowhere, "jumps nowhere"),
    (label_twice, "two blocks with one label"),
    (moving(lambda dst, _: {dst: Var(dst.aval, dst.active)}), "assigned nowhere"),
    (moving(lambda dst, _: {dst: OF_INTEGERS}), "move of"),
    (moving(lambda _, operand: {operand: operand}), "an operand is assigned"),
    (moving(lambda dst, _: {Var(dst.aval, False): dst}), "a derivative is lost"),
    (empty_loop, "an empty loop"),
    (does_not_end, "the last block must end the run"),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN, ids=[said for _, said in BROKEN])
def test_broken_programs_are_refused(spoil: Any, message: str) -> None:
    flat(climb, 0.5)
    lie = seams.lying("lower_jaxpr", lambda made, *_: spoil(made[0]))
    with lie, pytest.raises(AssertionError, match=message):
        flat(climb, 0.5)


# Places and code ----------------------------------------------------------------------


def scanned(x: Any) -> Any:
    c, ys = jax.lax.scan(lambda c, a: (c * a, c), x, jnp.arange(1.0, 6.0))
    return c + jax.lax.while_loop(lambda v: v < 5.0, lambda v: v * 1.5, ys[0])


def outer_product(x: Any) -> Any:
    """What only the last block assigns, nothing is resumed from."""
    return jnp.outer(*[jax.lax.while_loop(lambda v: v[0] < 9, jnp.exp, x)] * 2)


def test_a_snapshot_holds_the_counter_and_registers_but_no_rows_and_no_output() -> None:
    places = seams.compiled(climb, 0.5).layout
    assert places.snapshot_bytes() == 4 + 8 == places.capsule_bytes()
    rows = seams.compiled(scanned, 0.5).layout
    assert all(rows.avals[p].shape == () for p in rows.places("register"))
    outputs = seams.compiled(outer_product, jnp.ones(4)).layout
    assert outputs.capsule_bytes() >= outputs.snapshot_bytes() + 16 * 8
    assert outputs.snapshot_bytes() == 4 + 4 * 8


def handed_down(x: Any) -> Any:
    """The outer loop hands `x` to the inner one and takes it back."""
    inner = lambda c: (c[0] + 1, 1.5 * c[1])  # noqa: E731

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
    taped = seams.compiled(handed_down, np.ones(3, np.float32)).taped.values()
    passing = [t for t in taped if not t.has_derivative and t.code.outs]
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
