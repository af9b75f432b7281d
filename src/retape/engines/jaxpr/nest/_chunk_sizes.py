"""How many turns each loop makes between two waits, and which blocks keep a guard.

All of it is a matter of speed: see `nest/_known_trips`. The rules, in steps:

- An outermost loop makes about a stage at a time, so that a stage is one chunk where
  nothing is nested, and no turn is made in vain. Long stages are cut into equal parts.
  Where only a run can tell the end, what is dear makes fewer steps at a time.
- An inner loop of known length makes all its turns, or an equal part of them.
- One of unknown length makes as many as cost three quarters of what the blocks around
  do. Turns that it does not make then add less than those blocks cost; and where it
  makes many more, the blocks around, which are run with every such chunk, cost at most
  4/3 of what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jax.extend import core

from retape.engines.jaxpr.analysis._flops import flops
from retape.engines.jaxpr.codegen._compiled import Compiled, step_vjps
from retape.engines.jaxpr.ir._ir import Block, Label, Loop, blocks_of
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params

LONGEST = 64
"""Turns of a loop at a time, at most. With 64 steps for a wait of some 15 us a step of
one kernel, 3 us, waits a tenth of its time; longer chunks make more steps in vain where
a run ends, and cost nothing else."""
_SHORTEST = 4
"""The same where the end is unknown, at least, however dear a step is."""
_PERHAPS_IN_VAIN = 2048 * 2**12
"""Operations of a chunk where the end is unknown, so that some of them are in vain. A
step of an adaptive solve has 118 equations: 16 steps, for a solve of thirteen."""
_INNER = 16
"""The same for an inner loop whose length only a run can tell."""
_KNOWN = 32
"""The same for an inner loop of known length."""
_FEW_STEPS = 8
"""Stages of fewer steps than these make more steps in vain, and fewer waits."""
WAIT = 5 * 2**12
"""Operations in whose time a host waits once, about: that of five kernels."""
_CHEAP = 0.25
"""A block outside all loops is run in vain if it costs no more of a chunk than this."""

_MAY_NOT_END = frozenset({"while"})
_TALKS = ("callback", "infeed", "outfeed", "ffi_call")


@dataclass(slots=True, eq=False)
class ChunkSizes:
    """The numbers for one program.

    Attributes:
        turns: For each loop, by identity, its turns at a time.
        guarded: Blocks that keep their guard wherever they stand.
        dear: Blocks outside all loops that cost more than a part of a chunk, or change
            more than it does.
    """

    is_single: bool = False
    """Whether there is one loop, of one block."""
    is_branched: bool = False
    """Whether loops hold several blocks."""
    turns: dict[int, int] = field(default_factory=dict)
    guarded: set[Label] = field(default_factory=set)
    dear: set[Label] = field(default_factory=set)

    def keeps_guard(self, label: Label, *, outside: bool) -> bool:
        """Tell whether a block must not be run when it is not its turn, or is dear."""
        return label in self.guarded or (outside and label in self.dear)


def chunk_sizes(
    compiled: Compiled, stage: int, *, derivatives: bool = True
) -> ChunkSizes:
    """Choose the numbers.

    Args:
        compiled: The program.
        stage: Steps in a stage.
        derivatives: Whether steps are swept back, too.
    """
    loops = [i for i in compiled.items if isinstance(i, Loop)]
    blocks = [b for loop in loops for b in blocks_of([loop])]
    found = ChunkSizes(len(loops) == len(blocks) == 1, len(blocks) > 1)
    code = {k: [c.jaxpr.jaxpr] for k, c in compiled.code.items()}
    if derivatives:
        code = {k: _all_code(compiled, k, stage) for k in compiled.code}
    found.guarded = {k for k, each in code.items() if any(map(is_unsafe, each))}
    costs = {k: block_cost(c.jaxpr.jaxpr) for k, c in compiled.code.items()}
    chunk, capsule = 0, compiled.layout.capsule_bytes()
    for loop in loops:
        single = sum(costs[b.label] for b in blocks_of([loop]))
        longest = LONGEST
        if compiled.program.length is None:
            step = sum(_device_cost(compiled, b.label) for b in blocks_of([loop]))
            longest = max(_SHORTEST, min(LONGEST, _PERHAPS_IN_VAIN // max(1, step)))
        most = _equal_part(stage, longest)
        if stage < _FEW_STEPS:
            most = stage * max(1, min(_FEW_STEPS, WAIT // max(1, single)) // stage)
        chunk = max(chunk, _size(loop, costs, found, most))
    for item in compiled.items:
        if isinstance(item, Block):
            moved = sum(nbytes(v.aval) for v in compiled.code[item.label].outs)
            moved += sum(nbytes(v.aval) for v in compiled.code[item.label].ins)
            heavy = costs[item.label] > _CHEAP * chunk or moved > 4 * capsule
            found.dear |= {item.label} if heavy else set()
    return found


def most_waits(compiled: Compiled, stage: int, advances: int, n: int) -> int | None:
    """Waits of a sweep of known length, for one loop of one block; else `None`.

    There is a wait for each chunk that is advanced, and one at the end of the way to
    each stage (`sweep/_device_sweep`).

    Args:
        compiled: The program.
        stage: Steps in a stage.
        advances: Steps that the schedule advances.
        n: Stages, each of which a turn reverses.
    """
    sizes = chunk_sizes(compiled, stage)
    if not sizes.is_single or sizes.guarded or sizes.dear or stage > LONGEST:
        return None
    (chunk,) = sizes.turns.values()
    chunks = -(-advances // stage) * -(-stage // chunk)
    return n + chunks if chunk <= stage else None


def _size(loop: Loop, costs: dict[Label, int], found: ChunkSizes, most: int) -> int:
    """Choose for a loop and those inside; what a chunk of it costs."""
    inner = [i for i in loop.items if isinstance(i, Loop)]
    blocks = [i for i in loop.items if isinstance(i, Block)]
    around = sum(costs[b.label] for b in blocks)
    steps, cost = len(blocks), around
    for each in inner:
        # What one turn of it costs comes first: how many there are depends on it.
        single = _size(each, costs, found, 1)
        found.turns[id(each)] = turns = _inner_turns(each, single, around)
        steps, cost = steps + turns, cost + turns * single
    # A turn makes as many steps as it has blocks, if inner loops make half of theirs.
    made = max(1, steps // 2) if inner else max(1, len(blocks) // 2)
    found.turns[id(loop)] = turns = max(1, most // made if inner else most)
    return turns * cost


def _inner_turns(loop: Loop, single: int, around: int) -> int:
    if loop.length is not None:
        return _equal_part(loop.length, _KNOWN)
    return max(2, min(_INNER, 3 * around // (4 * max(1, single))))


def _equal_part(whole: int, most: int) -> int:
    """The largest of equal parts that are no larger than `most`, rounded up."""
    parts = -(-whole // most)
    return max(1, -(-whole // max(1, parts)))


def _device_cost(compiled: Compiled, label: Label) -> int:
    """Operations of a block in whose time an accelerator has done it."""
    eqns = compiled.code[label].jaxpr.eqns
    return sum(KERNEL + flops(e) // BUSY for e in eqns)


def block_cost(jaxpr: core.Jaxpr) -> int:
    """Operations of a block, each equation at least as dear as a kernel's start."""
    return sum(max(KERNEL, flops(e)) for e in jaxpr.eqns)


KERNEL = 2**12
"""Operations in whose time a kernel is started, about."""
BUSY = 2**8
"""Operations on elements of a large array in the time of one of a kernel's start."""


def _all_code(compiled: Compiled, label: Label, stage: int) -> list[core.Jaxpr]:
    """What is run of a block: forwards, and backwards, where rules may have loops."""
    taped, programs = compiled.taped[label], [compiled.code[label].jaxpr]
    if taped.ending:
        programs.append(taped.whole)
    elif stage == 1:
        programs.append(step_vjps(compiled, False)[label])
    else:
        pullback = taped.halves.pullback
        programs += [taped.halves.taped, *([] if pullback is None else [pullback])]
    return [each.jaxpr for each in programs]


def is_unsafe(jaxpr: core.Jaxpr) -> bool:
    """Tell whether it must not be run on values that are none of its."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in _MAY_NOT_END or any(word in name for word in _TALKS):
            return True
        if eqn.effects:
            return True
        inner = (getattr(j, "jaxpr", j) for j in jaxprs_in_params(eqn.params))
        if any(map(is_unsafe, inner)):
            return True
    return False
