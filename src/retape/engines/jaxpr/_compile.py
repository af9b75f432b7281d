"""The program as compiled code needs it: every pass run, every intermediate checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from ._absorb import absorb, check_absorbed
from ._check import check_code, check_layout, check_program
from ._code import Code, encode
from ._counted import Limits, count_loops
from ._cut import check_cut, cut
from ._flatten import flatten
from ._host import on_device
from ._ir import Item, Label, Program, loops_around, nbytes
from ._layout import Layout, lay_out
from ._own_copies import own_copies
from ._tape import TapedCode, tape
from ._turned import turn
from ._types import Kind
from ._write_once import write_once

GRAIN = 2**20
"""Scans with fewer bytes of residuals stay one operation: reversing them by storing
everything is then cheaper than any bookkeeping."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A program with its layout, its code and its derivative code."""

    program: Program
    layout: Layout
    constants: tuple[Any, ...]
    code: dict[Label, Code]
    taped: dict[Label, TapedCode]

    @property
    def items(self) -> list[Item]:
        return self.program.items

    @property
    def end(self) -> int:
        """The program counter of a run that has ended."""
        return len(self.code)

    def turned(self, taped: TapedCode) -> set[int]:
        """Positions of a block's inputs that give their places to their cotangents."""
        where, ins = self.layout.where, taped.code.ins
        if not taped.ending:
            return set()
        return {i for i, v in enumerate(ins) if where[v] in self.layout.turned}

    def pool_rows(self, stage: int) -> dict[Kind, int]:
        """Rows that each pool needs for a stage of so many steps.

        Any of the blocks that stand in loops may run at every step of the stage; the
        others run at most once in all.
        """
        once: Counter[Kind] = Counter()
        often: Counter[Kind] = Counter()
        for t in self.taped.values():
            if t.code.once:
                once += t.pushes()
            else:
                often |= t.pushes()
        every = Counter[Kind]()
        for t in self.taped.values():
            every |= t.pushes()
        kinds = sorted(every, key=str)
        return {k: min(stage * every[k], stage * often[k] + once[k]) for k in kinds}

    def tape_bytes(self, stage: int) -> int:
        """Bytes of the tape of a stage of so many steps."""
        rows = self.pool_rows(stage)
        return 4 * stage + sum(n * _kind_bytes(k) for k, n in rows.items())


def _kind_bytes(kind: Kind) -> int:
    return nbytes(kind)


def _opened(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool], grain: int
) -> tuple[Program, list[Any]]:
    """The program as blocks, and its constants.

    A small loop that need not run is laid out, trip by trip, or if it only writes rows,
    stays one. Whether it does is known late, so both are tried.
    """
    left: list[Any] = []
    # Loops of proved length become `scan`s.
    counted = count_loops(jaxpr, active, Limits(grain, left))
    found = _as_blocks(counted, active, grain)
    if not left:
        return found
    laid_out = _as_blocks(count_loops(jaxpr, active, Limits(grain)), active, grain)
    as_few = len(loops_around(found[0].items)) <= len(loops_around(laid_out[0].items))
    return found if as_few else laid_out


def _as_blocks(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool], grain: int
) -> tuple[Program, list[Any]]:
    # A nested jaxpr becomes blocks, with its loops as a tree.
    program, constants = flatten(jaxpr, active, grain=grain)
    # Buffers that are filled row by row become streams.
    write_once(program, constants)
    check_program(program)
    # Inner loops that only fill them stay inside a step.
    whole, program = program, absorb(program)
    check_absorbed(whole, program)
    check_program(program)
    return program, constants


def compile_program(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    *,
    grain: int = GRAIN,
    piece: int | None = None,
) -> Compiled:
    """All passes, in order; blocks that tape more than `piece` bytes are cut."""
    # A sweep inside this one keeps its snapshots in registers.
    jaxpr = on_device(jaxpr)
    # On devices that leave a loop at different times no derivative waits for others.
    jaxpr = own_copies(jaxpr)
    program, constants = _opened(jaxpr, active, grain)
    # Long blocks become several.
    if piece is not None:
        whole, program = program, cut(program, piece)
        check_cut(whole, program)
        check_program(program)
    # Every variable that crosses blocks gets a place.
    layout, live = lay_out(program)
    check_layout(program, layout, live)
    # Blocks become pure functions.
    code = encode(program, layout, live)
    check_code(program, layout, code)
    # Their derivatives are split around the tape.
    last = len(code) - 1
    taped = {k: tape(c, layout, ending=c.number == last) for k, c in code.items()}
    # Streams that only the last block reads give room to their cotangents.
    layout = turn(program, layout, taped)
    return Compiled(program, layout, tuple(constants), code, taped)
