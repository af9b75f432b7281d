"""Products of rows, rows that a reverse takes as they were, and lists: in C."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from retape.engines.vlad.compiler.ir._ir import Let, Register
from retape.engines.vlad.compiler.typed._row_operations import CELL
from retape.engines.vlad.operators._table import CAR, CDR, IS_NULL, IS_PAIR

if TYPE_CHECKING:
    from retape.engines.vlad.compiler.adjoint._emit_frames import FrameEmission


def record_dot(emission: "FrameEmission", term: Let) -> None:
    """The sum of the products of two rows' elements."""
    a, b = (arg for arg in term.args if isinstance(arg, Register))
    x, y = emission.slot(a), emission.slot(b)
    versions = emission.version(a), emission.version(b)
    emission.line(f"ROWS_ALIKE({x}, {versions[0]}, {y}, {versions[1]})")
    emission.line(f"{emission.slot(term.var)} = row_dot({x}, {y}); WORKED")
    _keep(emission, a, b)


def record_product(emission: "FrameEmission", term: Let) -> None:
    """A row that is the product of two matrices."""
    _, rows, columns, a, b = term.args
    assert isinstance(a, Register) and isinstance(b, Register)
    x, y, c = emission.slot(a), emission.slot(b), emission.slot(term.var)
    emission.line(f"ROW_CURRENT({x}, {emission.version(a)})")
    emission.line(f"ROW_CURRENT({y}, {emission.version(b)})")
    shape = f"{emission.atom(rows)}, {emission.atom(columns)}"
    emission.line(f"{c} = row_product({shape}, {x}, {y});")
    emission.line(f"if (UNLIKELY(!{c})) goto GIVE_UP;")
    emission.line(f"{emission.version(term.var)} = 0; WORKED")
    _keep(emission, a, b)


def _keep(emission: "FrameEmission", *rows: Register) -> None:
    if emission.taped:
        for row in dict.fromkeys(rows):
            emission.line(f"KEPT({emission.slot(row)})")


def own_set(made: str, row: str, place: str, value: str) -> str:
    """An assignment at a place that was looked at, to a row of its own if need be."""
    return (
        f"{made} = {row}->is_kept ? own_row({row}) : {row}; "
        f"{made}->value[{place}] = {value};"
    )


def _cell(emission: "FrameEmission", term: Let) -> None:
    value, rest = (emission.atom(arg) for arg in term.args)
    emission.line(f"CELL({emission.slot(term.var)}, {value}, {rest})")


def _car(emission: "FrameEmission", term: Let) -> None:
    """The first item; whoever takes what follows has taken it before."""
    cell = emission.atom(term.args[0])
    emission.line(f"if (UNLIKELY(!{cell})) goto GIVE_UP;")
    emission.line(f"{emission.slot(term.var)} = {cell}->value;")


def _cdr(emission: "FrameEmission", term: Let) -> None:
    cell = emission.atom(term.args[0])
    emission.line(f"{emission.slot(term.var)} = {cell}->next;")


def _is_empty(emission: "FrameEmission", term: Let) -> None:
    emission.line(f"{emission.slot(term.var)} = !{emission.atom(term.args[0])};")


def _is_cell(emission: "FrameEmission", term: Let) -> None:
    emission.line(f"{emission.slot(term.var)} = !!{emission.atom(term.args[0])};")


LISTS: "dict[str, Callable[[FrameEmission, Let], None]]" = {
    CELL: _cell,
    CAR: _car,
    CDR: _cdr,
    IS_NULL: _is_empty,
    IS_PAIR: _is_cell,
}
