"""Bytes of the parts of a sweep: what any has, a stage's tape, one more snapshot."""

from __future__ import annotations

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.sizing._workspace import tapeless_work_bytes, work_bytes
from retape.engines.jaxpr.sweep._state import far_places, snapshot_slots

_LONG = 1 << 16
"""A stage so long that blocks which run once do not weigh in its bytes per step."""


def bytes_per_step(compiled: Compiled) -> int:
    """Bytes of tape that one more step in a stage takes."""
    more = compiled.tape_bytes(2 * _LONG) - compiled.tape_bytes(_LONG)
    return -(-more // _LONG)


def snapshot_bytes(compiled: Compiled) -> int:
    """Bytes of one more snapshot: the capsule, and the controller's entries for it.

    A stage number, a slot, a program counter, the sweeps left; while the end is
    unknown, two dozen more numbers that the placement computes with.
    """
    return compiled.layout.snapshot_bytes() + (
        28 if compiled.program.length is not None else 208
    )


def fixed_bytes(
    compiled: Compiled,
    stage: int = 2,
    *,
    thrift: bool = False,
) -> int:
    """Bytes that any sweep needs: registers, cotangents, kept values, what is held.

    With stages of one step what is on the tape counts among the block's work.
    """
    held = compiled.layout.snapshot_bytes() if compiled.program.length is None else 0
    work = (
        tapeless_work_bytes(compiled, thrift=thrift)
        if stage == 1
        else work_bytes(compiled)
    )
    return compiled.layout.fixed_bytes() + held + work


def stage_bytes(compiled: Compiled, stage: int) -> int:
    """Bytes of the tape of a stage."""
    return 4 if stage == 1 else compiled.tape_bytes(stage)


def peak_bytes(program: Compiled, settings: Settings) -> int:
    """Registers, cotangents and kept values once; snapshots; the tape of a stage."""
    return (
        fixed_bytes(program, settings.stage, thrift=settings.thrift)
        + settings.snapshots * snapshot_bytes(program)
        + stage_bytes(program, settings.stage)
    )


def host_bytes(program: Compiled, settings: Settings) -> int:
    """Bytes of the slots in the host's memory, that of a stage's start included."""
    avals, far = program.layout.avals, far_places(program, settings)
    return snapshot_slots(program, settings) * sum(nbytes(avals[p]) for p in far)
