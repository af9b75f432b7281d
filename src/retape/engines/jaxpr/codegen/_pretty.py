"""Print what code generation makes of a program: places, and what blocks tape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from retape.engines.jaxpr.codegen._allocate import Layout, Location
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.ir._ir import Label, Program
from retape.engines.jaxpr.ir._pretty import Printer, type_text


def pretty_layout(program: Program, layout: Layout) -> str:
    """The places of a program's variables, under the names that `pretty` gives them.

    operand 0   f32[4]*    a
    resident 0  f32[9,4]*  d, then its cotangent
    register 0  i32[]      b, e
    """
    printer = Printer(program)
    printer.text()
    lived: dict[Location, list[str]] = {}
    for var, place in layout.where.items():
        lived.setdefault(place, []).append(printer.atom(var))
    rows = [
        (f"{place.kind} {place.index}", _kind(layout, place), _who(layout, place, who))
        for kind in ("operand", "resident", "register")
        for place, who in sorted(lived.items())
        if place.kind == kind
    ]
    return "\n".join(_aligned(rows))


def _kind(layout: Layout, place: Location) -> str:
    return type_text(layout.avals[place]) + "*" * (place in layout.active)


def _who(layout: Layout, place: Location, names: list[str]) -> str:
    fill = layout.fills.get(place)
    begins = "" if fill is None else f", full of {fill}"
    shared = ", then its cotangent" if place in layout.turned else ""
    return ", ".join(names) + begins + shared


def pretty_tape(taped: Mapping[Label, TapedCode]) -> str:
    """The kinds of values that each block tapes, and how many inputs it reads again.

    block 0: no derivative
    block 1: tapes f32[4] i32[]; reads 1 of its inputs again
    block 2: run when it is swept back
    """
    return "\n".join(map(_tape_line, taped.values()))


def _tape_line(block: TapedCode) -> str:
    head = f"block {block.code.number}:"
    if block.ending:
        return f"{head} run when it is swept back"
    if not block.active_ins:
        return f"{head} no derivative"
    kinds = " ".join(type_text(k) for k in block.pushed()) or "nothing"
    again = len(block.halves.sources)
    more = f"; reads {again} of its inputs again" if again else ""
    return f"{head} tapes {kinds}{more}"


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(cell.ljust(width) for cell, width in cells).rstrip()
