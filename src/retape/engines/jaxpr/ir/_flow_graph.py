"""The flow graph of a program: who assigns what, what holds and lives at a block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TypeVar

from retape.engines.jaxpr.ir._ir import (
    Block,
    Label,
    Program,
    Var,
    blocks_of,
    loops_around,
)

T = TypeVar("T")


class Flow:
    """A program's blocks, and how they are connected."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.blocks = list(blocks_of(program.items))
        self.depth = loops_around(program.items)
        self.defined: dict[Var, list[Block]] = defaultdict(list)
        self.used: dict[Var, list[Block]] = defaultdict(list)
        for block in self.blocks:
            for var in block.defs():
                self.defined[var].append(block)
            for var in block.uses():
                self.used[var].append(block)
        self.place = {
            b.label: i for i, x in enumerate(program.items) for b in blocks_of([x])
        }

    def inside(self, block: Block) -> bool:
        """Tell whether a block stands in a loop."""
        return self.depth[block.label] > 0

    def seen_outside(self, var: Var, block: Block) -> bool:
        """True if another block, or the program's end, reads what a block assigns."""
        elsewhere = any(b is not block for b in self.used[var])
        return elsewhere or any(o is var for o in self.program.outs)

    def solve(
        self,
        start: T,
        transfer: Callable[[Block, T], T],
        join: Callable[[T, T], T],
    ) -> dict[Label, T]:
        """Solve a forward dataflow problem; returns the facts on entry to blocks.

        Args:
            start: What holds before the first block.
            transfer: From what holds before a block to what holds behind it.
            join: What holds whichever of two does.
        """
        # Kildall's worklist algorithm; what is joined grows or shrinks to an end.
        found = {self.blocks[0].label: start}
        by_label = {b.label: b for b in self.blocks}
        todo = [self.blocks[0].label]
        while todo:
            label = todo.pop(0)
            after = transfer(by_label[label], found[label])
            for target in by_label[label].next.targets:
                old = found.get(target)
                new = after if old is None else join(old, after)
                if new != old:
                    found[target] = new
                    if target not in todo:
                        todo.append(target)
        return found


@dataclass(frozen=True, slots=True)
class Liveness:
    """Live variables by block; what is always there is left out."""

    entry: dict[Label, frozenset[Var]]
    exit: dict[Label, frozenset[Var]]
    lasting: frozenset[Var]
    """Variables that are always there besides operands."""


def liveness(program: Program, lasting: Set[Var] = frozenset()) -> Liveness:
    """Live variables on entry to and on exit from every block.

    A capsule is the program counter and the variables that are live there: nothing else
    is needed to go on. The analysis is the textbook one (Aho, Lam, Sethi, Ullman,
    9.2.5), backwards over the flow graph until nothing changes:

        entry(b) = uses(b) + (exit(b) - defs(b))
        exit(b) = union of entry over successors
    """
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
