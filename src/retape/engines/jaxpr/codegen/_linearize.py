"""Linearize each block: a forward half that tapes, and a pullback half.

`jax.vjp` of a block gives its outputs and a pullback, and the pullback is a pytree
whose leaves are the residuals. Tracing both halves separately gives two jaxprs:

    taped:     ins -> (outs, values to tape)                       run forwards
    pullback:  (values taped, lasting inputs, d outs) -> d ins     run backwards

What is taped is chosen by `codegen/_min_cut`, and where, by `codegen/_tape_pools`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import Layout
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._check import check_linearized
from retape.engines.jaxpr.codegen._min_cut import choose_residuals
from retape.engines.jaxpr.codegen._rules_lacking import differentiable_run, no_rule
from retape.engines.jaxpr.codegen._tape_pools import pool_of, pushes
from retape.engines.jaxpr.intake._effects import refuse_effects_of_rules
from retape.engines.jaxpr.ir._ir import Var
from retape.engines.jaxpr.jaxprs._avals import Kind, kind_of, struct
from retape.engines.jaxpr.jaxprs._evaluate import restricted

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

    @property
    def seeded_outs(self) -> tuple[int, ...]:
        """Those of `active_outs` whose cotangents are not taken from a row."""
        code, n = self.code, len(self.code.outs)
        taken = [j for j, w in enumerate(code.writes, n) if w.number is not None]
        return tuple(i for i in self.active_outs if i not in taken)

    @property
    def has_derivative(self) -> bool:
        """Tell whether a cotangent goes through."""
        return bool(self.active_ins)

    @cached_property
    def halves(self) -> Linearized:
        """The taping half, the pullback half, and the residuals between them."""
        with jax.enable_x64(self.wide):
            split = _linearized(self)
        check_linearized(self, split)
        return split

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


def linearize(code: Code, layout: Layout, *, ending: bool = False) -> TapedCode:
    """Find which places a block's derivative goes between."""
    variables = [*code.ins, *(r.out for r in code.reads)]
    flags = [v.active for v in code.outs] + [w.stream.active for w in code.writes]
    ins = tuple(i for i, v in enumerate(variables) if v.active)
    outs = tuple(i for i, a in enumerate(flags) if a)
    if not ins or not outs:
        ins = outs = ()
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    lasting = frozenset(_lasting(code, layout))
    return TapedCode(code, lasting, ins, outs, wide, ending)


def _linearized(block: TapedCode) -> Linearized:
    code = block.code
    if not block.has_derivative or block.ending:
        return Linearized(code.jaxpr, (), (), None)
    n_out = len(code.jaxpr.out_avals)
    split = _Linearizer(code, block.active_ins, block.active_outs)
    taped = jax.make_jaxpr(split.forwards)(*map(struct, code.jaxpr.in_avals))
    refuse_effects_of_rules(taped)
    chosen = choose_residuals(taped, n_out, set(block.lasting))
    saved = chosen.taped.out_avals[n_out:]
    kinds = tuple(map(kind_of, saved))
    cotangents = [code.jaxpr.out_avals[i].to_tangent_aval() for i in block.active_outs]
    restored, pull = len(chosen.restore.in_avals), core.jaxpr_as_fun(chosen.restore)

    def back(*values: Any) -> tuple[Any, ...]:
        return split.backwards(*pull(*values[:restored]), *values[restored:])

    given = [*chosen.restore.in_avals, *cotangents]
    try:
        pullback = jax.make_jaxpr(back)(*map(struct, given))
    except Exception as error:
        raise no_rule(code.ruled, block.active_ins, error) from error
    return Linearized(chosen.taped, kinds, chosen.sources, pullback)


class _Linearizer:
    """The two halves as Python functions; the first leaves the shape for the second."""

    def __init__(
        self, code: Code, active_ins: Sequence[int], active_outs: Sequence[int]
    ) -> None:
        self.code = code
        self.active_ins = active_ins
        self.active_outs = active_outs
        self.shape: Any = None

    def forwards(self, *values: Any) -> list[Any]:
        run = differentiable_run(self.code.ruled, self.active_outs)

        def active_and_all(*values: Any) -> tuple[list[Any], list[Any]]:
            outs = run(*values)
            return [outs[i] for i in self.active_outs], outs

        partial = restricted(active_and_all, values, self.active_ins)
        chosen = [values[i] for i in self.active_ins]
        try:
            _, pull, outs = jax.vjp(partial, *chosen, has_aux=True)
        except Exception as error:
            raise no_rule(self.code.ruled, self.active_ins, error) from error
        residuals, self.shape = jax.tree_util.tree_flatten(pull)
        return [*outs, *residuals]

    def backwards(self, *values: Any) -> tuple[Any, ...]:
        n = self.shape.num_leaves
        pull = jax.tree_util.tree_unflatten(self.shape, values[:n])
        return pull(list(values[n:]))


def _lasting(code: Code, layout: Layout) -> set[int]:
    """Inputs of a block that are unchanged when the stage is swept back."""
    sources: list[Var] = [*code.ins, *(r.stream for r in code.reads)]
    kinds = ("operand", "resident")
    lasting = {v for v in sources if layout.where[v].kind in kinds} - code.filled
    return {i for i, v in enumerate(sources) if v in lasting}
