"""Analysis: which variables are live on entry to each block.

A capsule is the program counter and the variables that are live there: nothing else
is needed to go on. The analysis is the textbook one (Aho, Lam, Sethi, Ullman, 9.2.5),
backwards over the flow graph until nothing changes:

    entry(b) = uses(b) + (exit(b) - defs(b));  exit(b) = union of entry over successors
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from retape.engines.jaxpr.ir._ir import Block, Label, Program, Var, blocks_of


@dataclass(frozen=True, slots=True)
class Liveness:
    """Live variables by block; what is always there is left out."""

    entry: dict[Label, frozenset[Var]]
    exit: dict[Label, frozenset[Var]]
    lasting: frozenset[Var]
    """Variables that are always there besides operands."""


def liveness(program: Program, lasting: Set[Var] = frozenset()) -> Liveness:
    """Live variables on entry to and on exit from every block."""
    blocks = list(blocks_of(program.items))
    always = program.given | lasting
    uses = {b.label: b.uses() - always for b in blocks}
    defs = {b.label: whole_defs(b) for b in blocks}
    at_end = frozenset(o for o in program.outs if isinstance(o, Var)) - always
    entry = {b.label: frozenset(uses[b.label]) for b in blocks}
    leave: dict[Label, frozenset[Var]] = {}
    changed = True
    while changed:
        changed = False
        for b in reversed(blocks):
            after = [entry[t] for t in b.next.targets] or [at_end]
            leave[b.label] = frozenset().union(*after)
            before = frozenset(uses[b.label]) | (leave[b.label] - defs[b.label])
            if before != entry[b.label]:
                entry[b.label], changed = before, True
    return Liveness(entry, leave, frozenset(lasting))


def whole_defs(block: Block) -> set[Var]:
    """Variables that a block assigns whole (a written row leaves the other rows)."""
    rows = {w.stream for w in block.writes} - set(block.moves)
    return block.defs() - rows
