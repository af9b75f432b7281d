"""The checkers of code generation catch small lies."""

import operator
from dataclasses import replace

import jax.numpy as jnp
import pytest
from jax import lax

from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.seams import Read, Var, blocks_of


def program(x, w):
    """Rows that only the end reads; a step that reads an operand again."""
    _, rows = lax.scan(lambda x, _: (lax.sin(x * w), x), x, None, length=9)
    return jnp.sum(rows * rows)


def compiled():
    return seams.compiled(program, jnp.ones(3), jnp.ones(3))


def the_writer(program):
    return next(b for b in blocks_of(program.items) if b.writes)


# Places: what the pass made, and the program that it made it of ---------------------


def without_derivatives(made, program):
    layout, live = made
    return replace(layout, active=frozenset()), live


def one_register_for_two(made, program):
    layout, _ = made
    first, second, *_ = (v for v, p in layout.where.items() if p.kind == "register")
    layout.where[first] = layout.where[second]


# Functions of blocks and their derivatives -------------------------------------------


def in_the_writer(name, change):
    """Another function of the block that writes rows."""

    def lie(made, program, *_):
        label = the_writer(program).label
        changed = {name: change(getattr(made[label], name))}
        return made | {label: replace(made[label], **changed)}

    return lie


def in_each(name, change):
    def lie(made, *_):
        return {
            k: replace(t, **{name: change(getattr(t, name))}) for k, t in made.items()
        }

    return lie


def turned(values):
    return values[::-1]


def registers_read_again(made, codes, layout, _):
    def registers(t):
        kinds = [layout.where[v].kind for v in t.code.ins]
        return {i for i, kind in enumerate(kinds) if kind == "register"}

    return {k: replace(t, lasting=t.lasting | registers(t)) for k, t in made.items()}


# Sharing ------------------------------------------------------------------------------


def read_by_a_step(made, program, *_):
    stream = shared(made)
    the_writer(program).moves[Var(stream.aval)] = stream


def row_read_by_a_step(made, program, *_):
    stream, writer = shared(made), the_writer(program)
    row = Var(stream.aval.update(shape=stream.aval.shape[1:]))
    writer.reads.append(Read(row, stream, writer.writes[0].at))
    writer.moves[Var(row.aval)] = row


def returned(made, program, *_):
    program.outs = (*program.outs, shared(made))


def not_read_at_the_end(made, program, *_):
    [*blocks_of(program.items)][-1].ops.clear()


def assigned_at_the_end(made, program, *_):
    [*blocks_of(program.items)][-1].moves[shared(made)] = program.operands[0]


def never_written(made, program, *_):
    the_writer(program).writes.clear()


def registers_shared(made, *_):
    return replace(made, turned=frozenset(made.places("register")[:1]))


def moved(made, *_):
    return replace(made, fills={next(iter(made.turned)): 1.0})


def shared(layout):
    """The stream whose place is its cotangent's."""
    (place,) = layout.turned
    return next(v for v, p in layout.where.items() if p == place)


LIES = [
    ("allocate", without_derivatives, "a place loses a derivative"),
    ("allocate", one_register_for_two, "two live variables in one place"),
    ("encode", in_the_writer("number", lambda n: n + 1), "program order"),
    ("encode", in_the_writer("ins", turned), "an input of another type"),
    ("encode", in_the_writer("outs", turned), "a result of another type"),
    ("linearize", in_each("active_ins", lambda v: v[1:]), "a cotangent goes astray"),
    ("linearize", in_each("active_outs", turned), "a cotangent goes astray in"),
    ("linearize", in_each("ending", operator.not_), "another block ends the run"),
    ("linearize", registers_read_again, None),
    ("share_cotangents", read_by_a_step, "read before the last block"),
    ("share_cotangents", row_read_by_a_step, "a row read again"),
    ("share_cotangents", returned, "an output is overwritten"),
    ("share_cotangents", not_read_at_the_end, "nothing makes its cotangent"),
    ("share_cotangents", assigned_at_the_end, "the last block changes it"),
    ("share_cotangents", never_written, "no stream"),
    ("share_cotangents", registers_shared, "a snapshot would hold a cotangent"),
    ("share_cotangents", moved, "sharing moved something"),
]


@pytest.mark.parametrize(
    ("name", "lie", "said"),
    [pytest.param(*each, id=f"{each[0]}: {each[2]}") for each in LIES],
)
def test_a_lie_is_caught(name, lie, said):
    compiled()
    with seams.lying(name, lie), pytest.raises(AssertionError, match=said):
        compiled()
