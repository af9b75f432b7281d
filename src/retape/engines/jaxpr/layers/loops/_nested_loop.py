"""The turns of a loop in nested loops, whose reverse mode takes as little as asked.

The loop is cut into nested loops with marked (`jax.checkpoint`) bodies, and what is
left over follows in a loop of its own. All of it is JAX's, so every transformation
works.

What is scanned over is not handed down from level to level, since each level would make
a copy of its share. The innermost body takes its slice out of the whole array, and the
slices that are handed down only carry the derivative (`with_primal`); unused, they
vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact, nbytes
from retape.engines.jaxpr.jaxprs._jax_internals import scan_parts
from retape.engines.jaxpr.jaxprs._rewrite import known_length
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._remat_body import Body, rematerialised_body
from retape.engines.jaxpr.layers.loops._segment_lengths import Nest, nest, segmented
from retape.engines.jaxpr.primitives._with_primal import with_primal


class Turns(NamedTuple):
    """A loop whose number of turns is known, as it was written."""

    body: core.ClosedJaxpr
    """From constants, carry and rows to carry and rows."""
    consts: int
    carries: int
    length: int
    reverse: bool = False
    unroll: int = 1
    split_transpose: bool = False

    @classmethod
    def of_scan(cls, eqn: core.JaxprEqn) -> Turns:
        """Those of a `scan`."""
        params = eqn.params
        # Releases of JAX differ in whether the equation tells of the last.
        split = params.get("_split_transpose", False)
        how = known_length(eqn), params["reverse"], params["unroll"], split
        return cls(params["jaxpr"], *scan_parts(params), *how)

    @classmethod
    def of_while(
        cls, eqn: core.JaxprEqn, values: Sequence[Any], trips: int
    ) -> tuple[Turns, list[Any]]:
        """Those of a `while` loop that turns so often, and what its body is given."""
        body, consts = eqn.params["body_jaxpr"], eqn.params["body_nconsts"]
        given = list(values[eqn.params["cond_nconsts"] :])
        return cls(body, consts, len(given) - consts, trips), given

    def loop(self, body: Body, carry: Any, xs: Any, length: int) -> Any:
        """The innermost loop, which alone is unrolled."""
        return self._scan(body, carry, xs, length, unroll=self.unroll)

    def around(self, body: Body, carry: Any, xs: Any, length: int) -> Any:
        """A loop around others."""
        return self._scan(body, carry, xs, length)

    def _scan(self, body: Body, carry: Any, xs: Any, length: int, **more: Any) -> Any:
        options = {"reverse": self.reverse, "_split_transpose": self.split_transpose}
        return lax.scan(body, carry, xs, length, **options, **more)


def run_cut(
    turns: Turns, inside: Callable[..., list[Any]], options: LoopOptions, *values: Any
) -> list[Any]:
    """The last carry and the rows of a loop in segments, or with a marked body.

    Args:
        turns: The loop.
        inside: Runs its body.
        options: How it is cut.
        *values: Its constants, its first carry, and what it is over.
    """
    first, n = turns.consts, turns.carries
    fixed, init, xs = values[:first], values[first : first + n], values[first + n :]

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        outs = inside(*fixed, *carry, *row)
        return outs[:n], outs[n:]

    carry, ys = _run(turns, body, options, list(init), list(xs))
    return [*carry, *ys]


def _run(
    turns: Turns, body: Body, options: LoopOptions, init: list[Any], xs: list[Any]
) -> tuple[Any, Any]:
    cut = _segments(options, turns.length, init, xs)
    if len(cut.factors) > 1:
        return _Nested(body, cut, turns, options).run(init, xs)
    body = rematerialised_body(body, options.policy, options.offload)
    return turns.loop(body, init, xs, turns.length)


def _segments(options: LoopOptions, steps: int, init: Any, xs: Any) -> Nest:
    if options.segment_length is not None:
        return segmented(steps, options.segment_length)
    each = _bytes(filter(is_inexact, xs)) // max(1, steps)
    return nest(steps, options.at_most(), _bytes(init), each)


class _Nested:
    """A loop in two pieces: nested loops, then the rest."""

    def __init__(
        self, body: Body, cut: Nest, turns: Turns, options: LoopOptions
    ) -> None:
        self.body = body
        self.cut = cut
        self.turns = turns
        self.options = options

    def run(self, init: list[Any], xs: list[Any]) -> tuple[Any, Any]:
        """All steps, in order."""
        inside, rest, steps = self.cut.inside, self.cut.rest, self.cut.length
        # Whichever end is scanned last is left over.
        reverse = self.turns.reverse
        nested = slice(rest, steps) if reverse else slice(0, inside)
        beyond = slice(0, rest) if reverse else slice(inside, steps)
        # The slice is taken inside what is marked, so that it is not kept.
        body = rematerialised_body(_indexed(self.body, xs), self.options.policy, None)
        index = jnp.arange(steps), list(filter(is_inexact, xs))
        carry, ys = self.level(body, 0)(init, _folded(index, nested, self.cut.factors))
        ys = jax.tree.map(lambda y: _unfold(y, self.cut.factors), ys)
        if not rest:
            return carry, ys
        carry, last = self.loop(body, rest)(carry, _taken(index, beyond))
        first, second = (last, ys) if reverse else (ys, last)
        return carry, jax.tree.map(lambda a, b: _concatenated(a, b), first, second)

    def level(self, body: Body, depth: int) -> Body:
        """The loops from `depth` inwards, as one body."""
        length = self.cut.factors[depth]
        if depth + 1 == len(self.cut.factors):
            return self.loop(body, length)
        inner = self.level(body, depth + 1)
        inner = rematerialised_body(
            inner, None, self.options.offload if depth == 0 else None
        )
        return lambda carry, xs: self.turns.around(inner, carry, xs, length)

    def loop(self, body: Body, length: int) -> Body:
        return lambda carry, xs: self.turns.loop(body, carry, xs, length)


# What is scanned over -----------------------------------------------------------


def _indexed(body: Body, xs: list[Any]) -> Body:
    """The body of a loop over `(index, moving slices)` instead of `xs`."""
    fixed = list(map(lax.stop_gradient, xs))

    def indexed(carry: Any, at: Any) -> tuple[Any, Any]:
        index, moving = at
        slices = iter(moving)
        x = [lax.dynamic_index_in_dim(leaf, index, keepdims=False) for leaf in fixed]
        x = [with_primal(next(slices), v) if is_inexact(v) else v for v in x]
        return body(carry, x)

    return indexed


def _taken(xs: Any, part: slice) -> Any:
    return jax.tree.map(lambda x: x[part], xs)


def _folded(xs: Any, part: slice, factors: tuple[int, ...]) -> Any:
    return jax.tree.map(lambda x: x[part].reshape(*factors, *x.shape[1:]), xs)


def _unfold(y: jax.Array, factors: tuple[int, ...]) -> jax.Array:
    return y.reshape(-1, *y.shape[len(factors) :])


def _concatenated(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.concatenate([a, b])


def _bytes(arrays: Iterable[Any]) -> int:
    return sum(nbytes(jax.typeof(array)) for array in arrays)
