"""Refuse a sweep in which one device would wait for ever for another.

Devices that leave a loop at their own time run all that is in its sweep another number
of times each; `calls/_own_lengths` says why, and what is done about it. Collectives are
right in the last block alone, which is run once. So is the sum over devices that is the
derivative of a copy (`pvary`), in blocks outside of such loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.analysis._own_lengths import copies, meetings
from retape.engines.jaxpr.ir._ir import Block, Item, Program, blocks_of
from retape.engines.jaxpr.jaxprs._avals import varying
from retape.engines.jaxpr.jaxprs._jax_internals import named_by, source_line


def refuse_waiting(program: Program) -> None:
    """Refuse a program whose devices meet in steps that they do not all make.

    Raises:
        UnsupportedError: Names the operation at which they would meet.
    """
    *blocks, _ = blocks_of(program.items)
    axes = _differing(blocks)
    if not axes:
        return
    for block in blocks:
        for eqn in meetings([op.eqn for op in block.ops]):
            if axes & named_by(eqn):
                raise _waits(eqn, axes)
    for block in _in_loops_that_differ(program.items):
        own = [op.eqn for op in block.ops if any(v.active for v in op.outs)]
        for eqn in copies(own):
            raise _waits(eqn, axes)


def _differing(blocks: Iterable[Block]) -> frozenset[str]:
    """The mesh axes along which devices choose what to run next."""
    choices = [b.next.index for b in blocks if len(b.next.targets) > 1]
    return frozenset().union(*(varying(c.aval) for c in choices if c is not None))


def _in_loops_that_differ(items: list[Item]) -> Iterator[Block]:
    for item in items:
        if isinstance(item, Block):
            continue
        if _differing(blocks_of(item.items)):
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
