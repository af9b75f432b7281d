"""A compiled program: blocks, layout, code, derivative code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import Layout
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.ir._ir import Item, Label, Program
from retape.engines.jaxpr.jaxprs._avals import Kind, nbytes
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.xla._sink_weight_gradients import lean


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


@cached(64)
def with_thin_tape(compiled: Compiled) -> Compiled:
    """The same program with nothing on its tape but the inputs of each step.

    A step is run once more on its way back, as under scans that are nested by hand.
    """
    taped = {label: replace(t, thin=True) for label, t in compiled.taped.items()}
    return replace(compiled, taped=taped)


@cached(64)
def step_vjps(compiled: Compiled, thrift: bool) -> dict[Label, core.ClosedJaxpr]:
    """The derivatives of all blocks, for steps that are swept back at once.

    Args:
        compiled: The program.
        thrift: Whether they hold less at once; then they take a truth in front.
    """
    found = {label: taped.whole for label, taped in compiled.taped.items()}
    if not thrift:
        return found
    wide = next(iter(compiled.taped.values())).wide
    with jax.enable_x64(wide):
        return {label: lean(jaxpr) for label, jaxpr in found.items()}


def _kind_bytes(kind: Kind) -> int:
    return nbytes(kind)
