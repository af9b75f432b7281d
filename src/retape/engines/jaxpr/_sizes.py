"""Bytes of the parts of a sweep: what any has, a stage's tape, one more snapshot."""

from __future__ import annotations

from ._compile import Compiled
from ._work import direct_work_bytes, work_bytes

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
    return compiled.layout.capsule_bytes() + (
        28 if compiled.program.length is not None else 208
    )


def fixed_bytes(
    compiled: Compiled,
    stage: int = 2,
    *,
    thrift: bool = False,
    measured: bool = False,
) -> int:
    """Bytes that any sweep needs: registers, cotangents, kept values, what is held.

    With stages of one step what is on the tape counts among the block's work. That may
    be measured by the compiler.
    """
    held = compiled.layout.capsule_bytes() if compiled.program.length is None else 0
    work = (
        direct_work_bytes(compiled, thrift=thrift, measured=measured)
        if stage == 1
        else work_bytes(compiled)
    )
    return compiled.layout.fixed_bytes() + held + work


def stage_bytes(compiled: Compiled, stage: int) -> int:
    """Bytes of the tape of a stage."""
    return 4 if stage == 1 else compiled.tape_bytes(stage)
