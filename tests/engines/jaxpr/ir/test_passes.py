"""The intermediate form on small programs: its checker, liveness, places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape.jax
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import propagate
from retape.engines.jaxpr.codegen._allocate import allocate
from retape.engines.jaxpr.codegen._check import check_layout
from retape.engines.jaxpr.ir._check import check_program
from retape.engines.jaxpr.ir._ir import (
    Block,
    Jump,
    Label,
    Lit,
    Loop,
    Program,
    Var,
    blocks_of,
)
from retape.engines.jaxpr.ir._liveness import liveness
from retape.engines.jaxpr.lower._lower_jaxpr import lower_jaxpr


def flat(fun: Callable[..., Any], *args: Any) -> Program:
    jaxpr = jax.make_jaxpr(fun)(*args)
    active = [jnp.issubdtype(v.dtype, jnp.floating) for v in jaxpr.in_avals]
    return lower_jaxpr(jaxpr, active, grain=0)[0]


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

    assert len(list(blocks_of(flat(fun, 0.5).items))) == 1


def test_activity_is_a_least_fixed_point() -> None:
    def rotate(x: Any) -> Any:
        body = lambda c: (c[1], c[2], c[3], c[3], c[4] + 1)  # noqa: E731
        start = (1.0, 2.0, 3.0, x, 0)
        return jax.lax.while_loop(lambda c: c[4] < 9, body, start)

    def apart(x: Any) -> Any:
        body = lambda c: (c[0] * 2, c[1] + 1.0)  # noqa: E731
        return jax.lax.while_loop(lambda c: c[1] < 9, body, (x, 0.0))

    assert propagate(jax.make_jaxpr(rotate)(0.5), [True]) == [True] * 4 + [False]
    assert propagate(jax.make_jaxpr(apart)(0.5), [True]) == [True, False]


# The checker ------------------------------------------------------------------------


def the_body(program: Program) -> Block:
    loop = program.items[1]
    assert isinstance(loop, Loop)
    body = loop.items[0]
    assert isinstance(body, Block)
    return body


def jumps_nowhere(program: Program) -> None:
    the_body(program).next = Jump(None, (Label(),))


def label_twice(program: Program) -> None:
    program.items.append(Block(the_body(program).label))


def reads_what_is_not_assigned(program: Program) -> None:
    body = the_body(program)
    (dst,) = body.moves
    body.moves[dst] = Var(dst.aval, dst.active)


def moves_between_types(program: Program) -> None:
    body = the_body(program)
    (dst,) = body.moves
    body.moves[dst] = Lit(np.int32(0), jax.typeof(np.int32(0)))


def assigns_an_operand(program: Program) -> None:
    body = the_body(program)
    body.moves[program.operands[0]] = program.operands[0]


def loses_a_derivative(program: Program) -> None:
    body = the_body(program)
    (dst,) = body.moves
    body.moves[Var(dst.aval, active=False)] = body.moves[dst]


def empty_loop(program: Program) -> None:
    loop = program.items[1]
    assert isinstance(loop, Loop)
    program.items.insert(1, Loop([], 3))


def does_not_end(program: Program) -> None:
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
    program = flat(climb, 0.5)
    check_program(program)
    spoil(program)
    with pytest.raises(AssertionError, match=message):
        check_program(program)


def test_two_live_variables_in_one_place_are_refused() -> None:
    program = flat(lambda x: _both(x), 0.5)
    layout, live = allocate(program)
    check_layout(program, layout, live)
    carried = [v for v in live.entry[the_body(program).label] if v.active]
    assert len(carried) == 2
    layout.where[carried[0]] = layout.where[carried[1]]
    with pytest.raises(AssertionError, match="two live variables in one place"):
        check_layout(program, layout, live)


def _both(x: Any) -> Any:
    body = lambda c: (c[1] * 1.1, c[0] + x)  # noqa: E731
    a, b = jax.lax.while_loop(lambda c: c[0] < 5.0, body, (x, 2 * x))
    return a + b


# Liveness and places ---------------------------------------------------------------


def test_liveness_of_a_loop() -> None:
    program = flat(climb, 0.5)
    live = liveness(program)
    before, _, after = program.items
    body = the_body(program)
    (carry,) = live.entry[body.label]
    # The operand is always there and is not counted; the start has no past.
    assert isinstance(before, Block)
    assert isinstance(after, Block)
    assert live.entry[before.label] == frozenset()
    assert live.exit[body.label] == {carry}
    assert live.entry[after.label] == {carry}
    assert program.outs == (carry,)


def test_variables_that_never_live_together_share_a_slot() -> None:
    program = flat(two_in_turn, 0.5)
    layout, _ = allocate(program)
    assert len(layout.places("register")) == 1
    assert layout.capsule_bytes() == 4 + 8


def test_variables_that_live_together_do_not() -> None:
    layout, _ = allocate(flat(_both, 0.5))
    assert len(layout.places("register")) == 2
    assert layout.capsule_bytes() == 4 + 2 * 8


def test_stacked_rows_are_kept_beside_the_capsules() -> None:
    layout, _ = allocate(flat(scanned, 0.5))
    kept = [layout.avals[p].shape for p in layout.places("resident")]
    assert (5,) in kept
    assert all(layout.avals[p].shape == () for p in layout.places("register"))


def test_closed_over_arrays_are_operands() -> None:
    big = np.ones(1000)

    def fun(x: Any) -> Any:
        body = lambda v: v * 1.5 + jnp.sum(big)  # noqa: E731
        return jax.lax.while_loop(lambda v: v < 5.0, body, x)

    layout, _ = allocate(flat(fun, 0.5))
    assert layout.capsule_bytes() < 100
    assert [layout.avals[p].shape for p in layout.places("operand")] == [(), (1000,)]


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
    jaxpr = jax.make_jaxpr(handed_down)(np.ones(3, np.float32))
    compiled = compile_program(jaxpr, (True,), grain=0)
    passing = [
        t for t in compiled.taped.values() if not t.has_derivative and t.code.outs
    ]
    # The head of the outer loop's body and its tail have counters to assign; `x` goes
    # through both.
    assert len(passing) == 2
    assert not any(v.active for t in passing for v in t.code.outs)


def test_what_changes_places_is_assigned() -> None:
    compiled = compile_program(jax.make_jaxpr(exchanged)(0.5), (True,), grain=0)
    (loop,) = (i for i in compiled.items if isinstance(i, Loop))
    code = compiled.code[next(blocks_of([loop])).label]
    assert sum(v.active for v in code.outs) == 2
    assert float(retape.jax.grad(exchanged)(0.5)) == pytest.approx(np.cos(0.5))


def test_an_output_is_in_no_snapshot() -> None:
    """What only the last block assigns, nothing is resumed from."""

    def fun(x: Any) -> Any:
        return jnp.outer(*[jax.lax.while_loop(lambda v: v[0] < 9, jnp.exp, x)] * 2)

    jaxpr = jax.make_jaxpr(fun)(jnp.ones(4))
    layout = compile_program(jaxpr, [True]).layout
    assert layout.capsule_bytes() >= layout.snapshot_bytes() + 16 * 8
    assert layout.snapshot_bytes() == 4 + 4 * 8
