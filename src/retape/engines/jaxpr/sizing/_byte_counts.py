"""Bytes of the parts of a sweep: what any has, a stage's tape, one more snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled, step_vjps
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import nbytes, struct
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.jaxprs._provenance import call_p
from retape.engines.jaxpr.jaxprs._rewrite import programs_of
from retape.engines.jaxpr.jaxprs._subprogram import variables
from retape.engines.jaxpr.sweep._state import far_places, snapshot_slots
from retape.engines.jaxpr.sweep._sweep_program import has_plain, traced_sweep
from retape.engines.jaxpr.xla._standalone import Shardings, memory_of

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


def work_bytes(compiled: Compiled) -> int:
    """Room for the intermediate values of the hungriest block, and for copies.

    Fusion makes most intermediates vanish; on the other hand XLA copies registers
    where loops hand them over, four times at most in the programs measured. Both
    together were never below what the compiler reported
    (`benchmarks/accelerators/run.py`).
    """
    halves = [t.halves for t in compiled.taped.values()]
    jaxprs = [t.code.jaxpr for t in compiled.taped.values()]
    jaxprs += [h.taped for h in halves]
    jaxprs += [h.pullback for h in halves if h.pullback is not None]
    jaxprs += [t.whole for t in compiled.taped.values() if t.ending]
    busiest = max((peak_live(j.jaxpr) for j in jaxprs), default=0)
    return busiest + 4 * compiled.layout.capsule_bytes() + _COUNTERS


def tapeless_work_bytes(compiled: Compiled, *, thrift: bool = False) -> int:
    """The same where every stage is one step, reversed in one piece of code.

    Values are counted in the jaxpr's order, which comes out up to a third higher than
    what the compiler reports.

    Args:
        compiled: The program.
        thrift: Whether the derivatives are those that hold less at once.
    """
    found = step_vjps(compiled, thrift)
    capsule = compiled.layout.capsule_bytes()
    around = {k: _handed_over(t, found[k]) for k, t in compiled.taped.items()}
    # Copies of registers weigh where they are small beside the work, or in number.
    copies = capsule if capsule > _SMALL else 4 * capsule
    most = max(peak_live(j.jaxpr) + around[k] for k, j in found.items())
    return most + copies + _COUNTERS


_COUNTERS = 8192
"""Counters, masks of the online placement, alignment of small buffers."""
_SMALL = 1 << 16


def _handed_over(block: TapedCode, jaxpr: core.ClosedJaxpr) -> int:
    """Bytes of the rows that a block reads, and of the cotangents that it makes."""
    rows = sum(nbytes(r.out.aval) for r in block.code.reads)
    return rows + sum(nbytes(a) for a in jaxpr.out_avals)


def peak_live(jaxpr: Any) -> int:
    """The most bytes of intermediate values alive at once, evaluated in order."""
    last: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        last.update((v, i) for v in variables(eqn.invars))
    outputs = set(variables(jaxpr.outvars))
    alive = peak = 0
    for i, eqn in enumerate(jaxpr.eqns):
        alive += sum(nbytes(v.aval) for v in eqn.outvars if v not in outputs)
        within = [peak_live(body) for body in programs_of(eqn)]
        peak = max(peak, alive + max(within, default=0))
        gone = {
            v for v in (*variables(eqn.invars), *eqn.outvars) if last.get(v, i) == i
        }
        inner = gone - outputs - set(jaxpr.invars) - set(jaxpr.constvars)
        alive -= sum(nbytes(v.aval) for v in inner)
    return peak


def compiled_temporary_bytes(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    compiled: Compiled,
    settings: Settings,
    places: Shardings | None = None,
) -> int | None:
    """Bytes of temporaries that the compiler reports for a sweep, on each device.

    Args:
        jaxpr: The program that is swept.
        active: For each input, whether a derivative by it is wanted.
        compiled: The program as blocks.
        settings: The sizes.
        places: Where the program's inputs are, as far as it is known.

    Returns:
        `None` where the compiler does not report, or an ordinary derivative was asked
        for and there is none.
    """
    if settings.plain and not has_plain(jaxpr, tuple(active)):
        return None
    program = traced_sweep(jaxpr, active, compiled, settings)

    def whole(*values: Any) -> Any:
        # Bound inside `jit`, so that it is lowered as a sweep is.
        return call_p.bind(*values, jaxpr=program, plan=None)

    seeds = len(program.in_avals) - len(jaxpr.in_avals)
    where = None if places is None else (*places, *[None] * seeds)
    with jax.enable_x64(True):
        types = list(map(struct, program.in_avals))
        report = memory_of(whole, types, axis_names(program), where)
    return None if report is None else report.temp
