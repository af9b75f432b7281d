"""Linearize each block: a forward half that tapes, and a pullback half.

`jax.vjp` of a block gives its outputs and a pullback, and the pullback is a pytree
whose leaves are the residuals. One trace of both is cut at these:

    taped:     ins -> (outs, values to tape)                       run forwards
    pullback:  (values taped, lasting inputs, d outs) -> d ins     run backwards

What is taped is chosen by `codegen/_min_cut`, and where, by `codegen/_tape_pools`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import Layout
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._min_cut import choose_residuals
from retape.engines.jaxpr.codegen._rules_lacking import differentiable_run, no_rule
from retape.engines.jaxpr.codegen._tape_pools import pool_of, pushes
from retape.engines.jaxpr.intake._effects import refuse_effects_of_rules
from retape.engines.jaxpr.ir._ir import Label, Var
from retape.engines.jaxpr.jaxprs._avals import Kind, kind_of, struct
from retape.engines.jaxpr.jaxprs._evaluate import dce, vjp_by
from retape.engines.jaxpr.jaxprs._subprogram import (
    joined,
    slice_between,
    traced_together,
    variables,
)

COUNTS = Kind((), np.dtype(np.int32))
"""The type in which a loop counter is taped."""


@dataclass(frozen=True, slots=True, eq=False)
class Linearized:
    """A block's derivative, split in two."""

    taped: core.ClosedJaxpr
    """`(*ins, *rows) -> (*outs, *rows, next, *values to tape)`."""
    kinds: tuple[Kind, ...]
    """Of the values that are taped."""
    sources: tuple[int, ...]
    """Positions among `(*ins, *rows)` of inputs that the pullback reads again."""
    pullback: core.ClosedJaxpr | None
    """`(*taped, *sources, *cotangents of active_outs) -> those of active_ins`."""


@dataclass(frozen=True, eq=False)
class TapedCode:
    """A block with the places of its derivative, which is split when asked for.

    A stage of one step needs no tape, so that its blocks need not be split.
    """

    code: Code
    lasting: frozenset[int]
    """Positions among `(*ins, *rows)` of what is unchanged when a stage is swept back.
    """
    active_ins: tuple[int, ...]
    """Positions among `(*ins, *rows)` to which a cotangent goes back."""
    active_outs: tuple[int, ...]
    """Positions among `(*outs, *rows)` from which a cotangent comes."""
    wide: bool
    """Whether 64-bit types were on where the program was traced."""
    ending: bool
    """True of the program's last block, which is not taped (`sweep/_last_block`)."""
    together: _Together
    """All blocks, which are differentiated in one trace."""
    thin: bool = False
    """Whether its inputs alone are taped, and the rest computed again on the way back.
    """

    @property
    def has_derivative(self) -> bool:
        """Tell whether a cotangent goes through."""
        return bool(self.active_ins)

    @cached_property
    def halves(self) -> Linearized:
        """The taping half, the pullback half, and the residuals between them."""
        with jax.enable_x64(self.wide):
            return _linearized(self)

    @cached_property
    def whole(self) -> core.ClosedJaxpr:
        """The derivative in one piece, for a step that is swept back at once.

        `(*ins, *rows, *cotangents of active_outs) -> (*those of active_ins)`, and in
        the last block `(*outs, *rows, *numbers, next)` behind them.
        """
        if not self.has_derivative:
            inner, outs = self.code.jaxpr.jaxpr, self.code.jaxpr.jaxpr.outvars
            outs = outs if self.ending else []
            return slice_between(self.code.jaxpr, inner.invars, outs)
        both = self.derivative.jaxpr
        pulled = both.outvars[-len(self.active_ins) :]
        outs = both.outvars[: len(self.code.jaxpr.out_avals) if self.ending else 0]
        return dce(slice_between(self.derivative, both.invars, [*pulled, *outs]))

    @property
    def derivative(self) -> core.ClosedJaxpr:
        """The block and its pullback in one program.

        `(*ins, *rows, *cotangents of active_outs) -> (*outs, *rows, *numbers, next,
        *residuals, *cotangents of active_ins)`.
        """
        return self.together.derivatives[self.code.number]

    def counts(self) -> list[Var]:
        """Numbers that the sweep back needs to find a stream's rows.

        Loop counters, then what the code computes.
        """
        if self.ending:
            return []
        counters = self.code.counters() if self.has_derivative else []
        # A row that is written anew gives up its cotangent, whatever is written.
        return [*counters, *(self.code.numbers if self.code.taken else ())]

    def pushed(self) -> list[Kind]:
        """The kinds of the values that one run of the block tapes, in order."""
        return [*self.halves.kinds, *([COUNTS] * len(self.counts()))]

    def pushes(self) -> Counter[Kind]:
        """How many rows of each pool one run of the block fills."""
        return pushes(self.pushed())

    def by_pool(self, values: Sequence[Any]) -> dict[Kind, list[Any]]:
        """One value for each that one run puts on the tape, by the pools of those."""
        found: dict[Kind, list[Any]] = {}
        for kind, value in zip(self.pushed(), values, strict=True):
            found.setdefault(pool_of(kind), []).append(value)
        return found

    def filled(self, pools: Iterable[Kind]) -> Any:
        """How many rows of each of these pools one run fills."""
        counts = self.pushes()
        # An array would be a constant of the program, which a kernel cannot hold.
        return jnp.stack([np.int32(counts[kind]) for kind in pools])


def linearize(
    codes: Mapping[Label, Code], layout: Layout, end: int
) -> dict[Label, TapedCode]:
    """Find which places the derivatives of blocks go between.

    Args:
        codes: The blocks.
        layout: The places of variables.
        end: The number of the last block.
    """
    together = _Together()
    found = {k: _taped(c, layout, c.number == end, together) for k, c in codes.items()}
    together.blocks += (t for t in found.values() if t.has_derivative)
    return found


def _taped(code: Code, layout: Layout, ending: bool, together: _Together) -> TapedCode:
    variables = [*code.ins, *(r.out for r in code.reads)]
    flags = [v.active for v in code.outs] + [w.stream.active for w in code.writes]
    ins = tuple(i for i, v in enumerate(variables) if v.active)
    outs = tuple(i for i, a in enumerate(flags) if a)
    if not ins or not outs:
        ins = outs = ()
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    lasting = frozenset(_lasting(code, layout))
    return TapedCode(code, lasting, ins, outs, wide, ending, together)


class _Together:
    """The blocks of a program, which are traced at once when the first is asked for."""

    def __init__(self) -> None:
        self.blocks: list[TapedCode] = []

    @cached_property
    def derivatives(self) -> dict[int, core.ClosedJaxpr]:
        """The derivative of each block, by its number."""
        functions = [(partial(_pulled_back, b), _pull_types(b)) for b in self.blocks]
        with jax.enable_x64(self.blocks[0].wide):
            found = traced_together(functions)
        for jaxpr in found:
            refuse_effects_of_rules(jaxpr)
        numbers = (b.code.number for b in self.blocks)
        return dict(zip(numbers, found, strict=True))


def _pull_types(block: TapedCode) -> list[jax.ShapeDtypeStruct]:
    code = block.code.jaxpr
    seeds = (code.out_avals[i].to_tangent_aval() for i in block.active_outs)
    return list(map(struct, (*code.in_avals, *seeds)))


def _pulled_back(block: TapedCode, *values: Any) -> list[Any]:
    """What a block returns, what its pullback reads, and what that returns."""
    code, chosen, wanted = block.code, block.active_ins, block.active_outs
    run = differentiable_run(code.ruled, wanted)
    n = len(code.jaxpr.in_avals)
    try:
        outs, pull = vjp_by(run, values[:n], chosen, wanted)
        return [*outs, *jax.tree.leaves(pull), *pull(list(values[n:]))]
    except Exception as error:
        raise no_rule(code.ruled, chosen, error) from error


def _linearized(block: TapedCode) -> Linearized:
    code = block.code
    if not block.has_derivative or block.ending:
        return Linearized(code.jaxpr, (), (), None)
    if block.thin:
        return _of_inputs(block)
    n, n_out = len(code.jaxpr.in_avals), len(code.jaxpr.out_avals)
    both = block.derivative
    inner, pulled = both.jaxpr, len(block.active_ins)
    ins, cotangents = inner.invars[:n], inner.invars[n:]
    residuals = dict.fromkeys(variables(inner.outvars[n_out:-pulled]))
    read = [v for v in residuals if v not in inner.constvars]
    taped = slice_between(both, ins, [*inner.outvars[:n_out], *read])
    pull = slice_between(both, [*read, *cotangents], inner.outvars[-pulled:])
    chosen = choose_residuals(taped, n_out, set(block.lasting))
    kinds = tuple(map(kind_of, chosen.taped.out_avals[n_out:]))
    pullback = joined(chosen.restore, pull, len(cotangents))
    return Linearized(chosen.taped, kinds, chosen.sources, pullback)


def _of_inputs(block: TapedCode) -> Linearized:
    """The whole derivative as the second half; the first tapes what that reads."""
    code, whole = block.code.jaxpr, block.whole
    n, inner = len(code.in_avals), whole.jaxpr
    read = {*variables(inner.outvars)}.union(*(variables(e.invars) for e in inner.eqns))
    needed = [i for i in range(n) if inner.invars[i] in read]
    lasting = [i for i in needed if i in block.lasting]
    kept = [i for i in needed if i not in block.lasting]
    given = [*(inner.invars[i] for i in (*kept, *lasting)), *inner.invars[n:]]
    pullback = slice_between(whole, given, inner.outvars)
    own = code.jaxpr
    saved = [own.invars[i] for i in kept]
    taped = slice_between(code, own.invars, [*own.outvars, *saved])
    kinds = tuple(kind_of(code.in_avals[i]) for i in kept)
    return Linearized(taped, kinds, tuple(lasting), pullback)


def _lasting(code: Code, layout: Layout) -> set[int]:
    """Inputs of a block that are unchanged when the stage is swept back."""
    sources: list[Var] = [*code.ins, *(r.stream for r in code.reads)]
    kinds = ("operand", "resident")
    lasting = {v for v in sources if layout.where[v].kind in kinds} - code.filled
    return {i for i, v in enumerate(sources) if v in lasting}
