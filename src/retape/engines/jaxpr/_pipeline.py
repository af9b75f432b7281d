"""The passes, in order; a checker looks at the output of each.

    on_device          jaxpr   host buffers of an inner sweep become registers
    hoist_pvary        jaxpr   no derivative waits for devices in another loop
    while_to_scan      jaxpr   loops of proved length become `scan`s
    lower_jaxpr        blocks  a nested jaxpr becomes blocks, its loops a tree
    promote_buffers    blocks  buffers that are filled row by row become streams
    fuse_row_loops     blocks  inner loops that only fill them stay inside a step
    split_blocks       blocks  long blocks become several, where a budget is small
    allocate           places  every variable that crosses blocks gets one
    encode             jaxprs  blocks become pure functions
    linearize          jaxprs  their derivatives are split around the tape
    share_cotangents   places  streams give theirs to their cotangents in the end

Checkers assert what each pass owes to the next, in a few milliseconds of pure Python. A
failing one names the pass at fault. `retape.jax.show` prints what stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import allocate
from retape.engines.jaxpr.codegen._block_function import encode
from retape.engines.jaxpr.codegen._check import (
    check_code,
    check_layout,
    check_sharing,
    check_taped,
)
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._linearize import linearize
from retape.engines.jaxpr.codegen._share_cotangents import share_cotangents
from retape.engines.jaxpr.codegen._split_blocks import check_split, split_blocks
from retape.engines.jaxpr.ir._check import check_program, check_same_work
from retape.engines.jaxpr.ir._ir import Program, loops_around
from retape.engines.jaxpr.jaxprs._check import check_rewritten
from retape.engines.jaxpr.lower._check import check_lowered
from retape.engines.jaxpr.lower._hoist_pvary import hoist_pvary
from retape.engines.jaxpr.lower._lower_jaxpr import GRAIN, lower_jaxpr
from retape.engines.jaxpr.lower._while_to_scan import Limits, while_to_scan
from retape.engines.jaxpr.primitives._host_buffer import check_on_device, on_device
from retape.engines.jaxpr.streams._check import Outline, check_promoted
from retape.engines.jaxpr.streams._fuse_row_loops import fuse_row_loops
from retape.engines.jaxpr.streams._promote_buffers import promote_buffers

Watch = Callable[[str, Any], None]
"""Told the name of each pass that ran, and what came out of it; it must change nothing.
"""


def _nobody(name: str, output: Any) -> None:
    del name, output


def compile_program(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    *,
    grain: int = GRAIN,
    piece: int | None = None,
    watch: Watch = _nobody,
) -> Compiled:
    """Run all passes, in order.

    Args:
        jaxpr: The program.
        active: For each input, whether a derivative by it is wanted.
        grain: Scans with fewer bytes of residuals stay one operation.
        piece: Blocks that tape more bytes are split.
        watch: Is told of every pass.
    """
    before, jaxpr = jaxpr, on_device(jaxpr)
    check_rewritten(before, jaxpr)
    check_on_device(before, jaxpr)
    watch("on_device", jaxpr)
    before, jaxpr = jaxpr, hoist_pvary(jaxpr)
    check_rewritten(before, jaxpr)
    watch("hoist_pvary", jaxpr)
    program, constants = _blocks_of_loops(jaxpr, active, grain, watch)
    if piece is not None:
        whole, program = program, split_blocks(program, piece)
        check_split(whole, program)
        check_program(program)
        watch("split_blocks", program)
    layout, live = allocate(program)
    check_layout(program, layout, live)
    watch("allocate", (program, layout))
    code = encode(program, layout, live)
    check_code(program, layout, code)
    watch("encode", code)
    taped = linearize(code, layout, len(code) - 1)
    check_taped(program, layout, taped)
    watch("linearize", taped)
    alone, layout = layout, share_cotangents(program, layout, taped)
    check_sharing(program, alone, layout)
    watch("share_cotangents", (program, layout))
    return Compiled(program, layout, tuple(constants), code, taped)


def _blocks_of_loops(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool], grain: int, watch: Watch
) -> tuple[Program, list[Any]]:
    """The program as blocks, and its constants.

    A small loop that need not run is laid out, trip by trip, or if it only writes rows,
    stays one. Whether it does is known late, so both are tried.
    """
    left: list[Any] = []
    limits = Limits(grain, left)
    found = _as_blocks(jaxpr, active, limits, _nobody)
    if left:
        other = _as_blocks(jaxpr, active, Limits(grain), _nobody)
        loops, fewer = (len(loops_around(p.items)) for p, _ in (found, other))
        if fewer < loops:
            found, limits = other, Limits(grain)
    # Whoever watches is shown the way that was taken.
    return found if watch is _nobody else _as_blocks(jaxpr, active, limits, watch)


def _as_blocks(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool], limits: Limits, watch: Watch
) -> tuple[Program, list[Any]]:
    """The passes from loops to blocks."""
    before, jaxpr = jaxpr, while_to_scan(jaxpr, active, limits)
    check_rewritten(before, jaxpr)
    watch("while_to_scan", jaxpr)
    program, constants = lower_jaxpr(jaxpr, active, grain=limits.grain)
    check_lowered(jaxpr, active, program, constants)
    check_program(program)
    watch("lower_jaxpr", program)
    outline = Outline.of(program)
    promote_buffers(program, constants)
    check_promoted(outline, program)
    check_program(program)
    watch("promote_buffers", program)
    whole, program = program, fuse_row_loops(program)
    check_same_work(whole, program)
    check_program(program)
    watch("fuse_row_loops", program)
    return program, constants
