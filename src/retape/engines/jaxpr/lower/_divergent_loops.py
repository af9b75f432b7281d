"""Refuse a sweep in which one device would wait for ever for another.

Devices that leave a loop at their own time run all that is in its sweep another number
of times each; `calls/_shard_map` says why, and what is done about it. Collectives are
right in the last block alone, which is run once. So is the sum over devices that is the
derivative of a copy (`pvary`), in blocks outside of such loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.analysis._divergent_loops import collectives, pvary_equations
from retape.engines.jaxpr.ir._ir import Block, Item, Label, Loop, Program, blocks_of
from retape.engines.jaxpr.jaxprs._avals import varying
from retape.engines.jaxpr.jaxprs._jax_internals import named_by, source_line


def refuse_waiting(program: Program) -> None:
    """Refuse a program whose devices meet in steps that they do not all make.

    Raises:
        UnsupportedError: Names the operation at which they would meet.
    """
    *blocks, _ = blocks_of(program.items)
    axes = _differing(program.items)
    if not axes:
        return
    for block in blocks:
        for eqn in collectives([op.eqn for op in block.ops]):
            if axes & named_by(eqn):
                raise _waits(eqn, axes)
    for block in _in_loops_that_differ(program.items):
        own = [op.eqn for op in block.ops if any(v.active for v in op.outs)]
        for eqn in pvary_equations(own):
            raise _waits(eqn, axes)


def _differing(items: list[Item]) -> frozenset[str]:
    """The mesh axes along which devices choose what to run next.

    Not those along which they meet in the loop that is chosen: they go through it
    together, or the program itself would wait for ever.
    """
    met = dict(_met_in_loops(items))
    found: set[str] = set()
    for block in blocks_of(items):
        choice, targets = block.next.index, block.next.targets
        if choice is not None and len(targets) > 1:
            together = set[str]().union(*(met.get(t, ()) for t in targets))
            found |= varying(choice.aval) - together
    return frozenset(found)


def _met_in_loops(items: list[Item]) -> Iterator[tuple[Label, set[str]]]:
    """The first block of each loop, with the axes along which devices meet in it."""
    for item in items:
        if isinstance(item, Loop):
            inside = list(blocks_of(item.items))
            eqns = [op.eqn for block in inside for op in block.ops]
            axes = set[str]().union(*map(named_by, collectives(eqns)))
            yield inside[0].label, axes
            yield from _met_in_loops(item.items)


def _in_loops_that_differ(items: list[Item]) -> Iterator[Block]:
    for item in items:
        if isinstance(item, Loop) and _differing([item]):
            yield from blocks_of(item.items)


def _waits(eqn: core.JaxprEqn, axes: frozenset[str]) -> UnsupportedError:
    named = ", ".join(sorted(axes))
    what = "collective" if eqn.primitive.name != "pvary" else "copy"
    return UnsupportedError(
        f"The {what} `{eqn.primitive.name}` at {source_line(eqn)} stands where devices "
        f"along the mesh axis `{named}` take each its own number of steps, so one "
        "would wait for another for ever. Make the test of that loop the same on all "
        "devices (`jax.lax.pmax` of it), or move the collective out of the loop. With "
        "a plan of bytes pass `retape.fixed_space` or `retape.logarithmic` instead."
    )
