"""The checkers of code generation catch small lies."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.codegen._check import (
    check_code,
    check_layout,
    check_linearized,
    check_sharing,
    check_taped,
)
from retape.engines.jaxpr.codegen._share_cotangents import without_sharing
from retape.engines.jaxpr.ir._ir import Var, blocks_of
from retape.engines.jaxpr.ir._liveness import liveness


def program(x, w):
    """Rows that only the end reads; a step that reads an operand again."""
    _, rows = lax.scan(lambda x, _: (lax.sin(x * w), x), x, None, length=9)
    return jnp.sum(rows * rows)


def compiled():
    jaxpr = jax.make_jaxpr(program)(jnp.ones(3), jnp.ones(3))
    return compile_program(jaxpr, [True, True], grain=0)


def parts():
    """The program, its stream's place, the block that writes it, the last block."""
    made = compiled()
    (place,) = made.layout.turned
    *others, last = blocks_of(made.program.items)
    (writer,) = (b for b in others if b.writes)
    return made, place, writer, last


# Sharing ------------------------------------------------------------------------------


def read_by_a_step(made, place, writer, last):
    writer.moves[Var(stream_of(made, place).aval)] = stream_of(made, place)


def row_read_by_a_step(made, place, writer, last):
    from retape.engines.jaxpr.ir._ir import Read

    stream, at = stream_of(made, place), writer.writes[0].at
    row = Var(stream.aval.update(shape=stream.aval.shape[1:]))
    writer.reads.append(Read(row, stream, at))
    writer.moves[Var(row.aval)] = row


def returned(made, place, writer, last):
    made.program.outs = (*made.program.outs, stream_of(made, place))


def not_read_at_the_end(made, place, writer, last):
    last.ops.clear()


def assigned_at_the_end(made, place, writer, last):
    last.moves[stream_of(made, place)] = next(iter(made.program.operands))


def never_written(made, place, writer, last):
    writer.writes.clear()


def stream_of(made, place):
    return next(v for v, p in made.layout.where.items() if p == place)


SHARED = {
    read_by_a_step: "read before the last block",
    row_read_by_a_step: "a row read again",
    returned: "an output is overwritten",
    not_read_at_the_end: "nothing makes its cotangent",
    assigned_at_the_end: "the last block changes it",
    never_written: "no stream",
}


@pytest.mark.parametrize("lie", SHARED, ids=lambda f: f.__name__)
def test_a_place_that_is_still_needed_is_not_shared(lie):
    made, place, writer, last = parts()
    alone = without_sharing(made.layout)
    check_sharing(made.program, alone, made.layout)
    lie(made, place, writer, last)
    with pytest.raises(AssertionError, match=SHARED[lie]):
        check_sharing(made.program, alone, made.layout)


def test_registers_are_never_shared():
    made, *_ = parts()
    (register, *_) = made.layout.places("register")
    wrong = replace(made.layout, turned=frozenset({register}))
    with pytest.raises(AssertionError, match="a snapshot would hold a cotangent"):
        check_sharing(made.program, without_sharing(made.layout), wrong)


def test_sharing_moves_nothing():
    made, place, *_ = parts()
    wrong = replace(made.layout, fills={place: 1.0})
    with pytest.raises(AssertionError, match="sharing moved something"):
        check_sharing(made.program, without_sharing(made.layout), wrong)


# Derivatives --------------------------------------------------------------------------


TAPED = {
    "a cotangent goes astray": lambda t: {"active_ins": t.active_ins[1:]},
    "a cotangent goes astray in": lambda t: {"active_outs": t.active_outs[::-1]},
    "another block ends the run": lambda t: {"ending": not t.ending},
}


@pytest.mark.parametrize("said", TAPED)
def test_cotangents_go_where_they_belong(said):
    made, _, writer, _ = parts()
    check_taped(made.program, made.layout, made.taped)
    wrong = replace(made.taped[writer.label], **TAPED[said](made.taped[writer.label]))
    with pytest.raises(AssertionError, match=said):
        check_taped(made.program, made.layout, made.taped | {writer.label: wrong})


def test_registers_are_not_read_again_when_a_stage_is_swept_back():
    made, _, writer, _ = parts()
    taped = made.taped[writer.label]
    register = next(
        i
        for i, v in enumerate(taped.code.ins)
        if made.layout.where[v].kind == "register"
    )
    wrong = replace(taped, lasting=taped.lasting | {register})
    with pytest.raises(AssertionError):
        check_taped(made.program, made.layout, made.taped | {writer.label: wrong})


SPLIT = {
    "other values taped": lambda s: {"kinds": s.kinds[1:]},
    "read again, and gone by then": lambda s: {"sources": (0, 1, 2)},
    "other results": lambda s: {"taped": s.pullback},
    "other values on the way back": lambda s: {"pullback": s.taped},
}


@pytest.mark.parametrize("said", SPLIT)
def test_halves_fit_one_another(said):
    made, _, writer, _ = parts()
    taped = made.taped[writer.label]
    check_linearized(taped, taped.halves)
    wrong = replace(taped.halves, **SPLIT[said](taped.halves))
    with pytest.raises(AssertionError, match="other|read again"):
        check_linearized(taped, wrong)


# Places and functions -----------------------------------------------------------------


def test_a_place_keeps_the_derivative_of_its_variables():
    made, *_ = parts()
    wrong = replace(made.layout, active=frozenset())
    live = liveness(made.program, lasting=residents(made))
    check_layout(made.program, made.layout, live)
    with pytest.raises(AssertionError, match="a place loses a derivative"):
        check_layout(made.program, wrong, live)


def residents(made):
    return {v for v, p in made.layout.where.items() if p.kind == "resident"}


CODE = {
    "program order": lambda c: {"number": c.number + 1},
    "an input of another type": lambda c: {"ins": c.ins[::-1]},
    "a result of another type": lambda c: {"outs": c.outs[::-1]},
}


@pytest.mark.parametrize("said", CODE)
def test_functions_have_the_types_of_their_places(said):
    made, _, writer, _ = parts()
    check_code(made.program, made.layout, made.code)
    wrong = replace(made.code[writer.label], **CODE[said](made.code[writer.label]))
    with pytest.raises(AssertionError, match=said):
        check_code(made.program, made.layout, made.code | {writer.label: wrong})
