"""The checker of promoted buffers catches small lies."""

from dataclasses import replace

import jax.numpy as jnp
import pytest
from jax import lax

from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.seams import (
    Loop,
    Position,
    Read,
    Var,
    Write,
    blocks_of,
)


def program(x):
    def step(c):
        i, x, rows = c
        return i + 1, lax.sin(x), rows.at[i].set(x)

    start = (0, x, jnp.zeros(9))
    rows = lax.while_loop(lambda c: (c[0] < 9) & (c[1] > 0.1), step, start)[2]
    return jnp.sum(rows * rows)


def promoted():
    return seams.form_after("promote_buffers", program, 0.5)


def writer(made):
    """The block that writes rows."""
    (block,) = (b for b in blocks_of(made.items) if b.writes)
    return block


def begins_again(made, stream, block):
    block.moves[stream] = next(iter(blocks_of(made.items))).moves[stream]


def begins_in_the_loop(made, stream, block):
    begins_again(made, stream, block)
    del next(iter(blocks_of(made.items))).moves[stream]


def read_whole(made, stream, block):
    block.moves[Var(stream.aval, True)] = stream


def written_whole(made, stream, block):
    block.writes.append(Write(stream, None, stream))


def read_early(made, stream, block):
    row = Var(stream.aval.update(shape=stream.aval.shape[1:]))
    block.reads.append(Read(row, stream, Position(made.written, 9, False)))


def loses_a_block(made, stream, block):
    made.items.pop()


def loses_a_derivative(made, stream, block):
    made.outs = (replace(made.outs[0], active=False),)


LIES = {
    begins_again: "a stream begins once",
    begins_in_the_loop: "before its loops",
    read_whole: "read before it is complete",
    written_whole: "written by rows",
    read_early: "a row read before its time",
    loses_a_block: "a block is gone",
    loses_a_derivative: "a lost derivative",
}


def test_rows_are_written_in_the_loop():
    made = promoted()
    block = writer(made)
    assert any(isinstance(i, Loop) and block in i.items for i in made.items)


@pytest.mark.parametrize("lie", LIES, ids=lambda f: f.__name__)
def test_a_lie_is_caught(lie):
    def spoil(made, *_):
        block = writer(made)
        lie(made, block.writes[0].stream, block)

    with (
        seams.lying("promote_buffers", spoil),
        pytest.raises(AssertionError, match=LIES[lie]),
    ):
        promoted()
