"""`scan`: `jax.lax.scan` of any length, whose reverse mode takes as little as asked.

The loop is cut into nested loops with marked (`jax.checkpoint`) bodies, and what is
left over follows in a loop of its own. All of it is JAX's, so every transformation
works.

What is scanned over is not handed down from level to level, since each level would make
a copy of its share. The innermost body takes its slice out of the whole array, and the
slices that are handed down only carry the derivative (`with_primal`); unused, they
vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from retape._errors import PlanError
from retape.engines.jaxpr.api._transform import checkpointed
from retape.engines.jaxpr.jaxprs._avals import is_inexact, nbytes
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._remat_body import Body, rematerialised_body
from retape.engines.jaxpr.layers.loops._segment_lengths import Nest, nest, segmented
from retape.engines.jaxpr.layers.loops._traced_loop import run_loop
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.engines.jaxpr.primitives._with_primal import with_primal
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._options import Memory

Carry = TypeVar("Carry")
Over = TypeVar("Over")
Out = TypeVar("Out")


def scan(
    f: Callable[[Carry, Over], tuple[Carry, Out]],
    init: Carry,
    xs: Over | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    levels: int | None = None,
    segment_length: int | None = None,
    policy: Policy | Plan | None = None,
    offload: Memory | None = None,
) -> tuple[Carry, Out]:
    r"""`jax.lax.scan`, whose reverse mode keeps few carries and one step's tape.

    With `levels=k` a loop of n steps keeps O(n^(1/k)) carries and runs each step k
    times more: k nested loops, as by hand, but of any length. The lengths are those of
    least bytes, counted from the carry and from what is scanned over.

    Args:
        f: The body, `(carry, x) -> (carry, y)`.
        init: The first carry.
        xs: What is scanned over, arrays with one leading axis; `None` for nothing.
        length: The number of steps, if `xs` does not tell.
        reverse: Whether to begin with the last element of `xs`.
        unroll: Steps of the innermost loop in one trip, as in `jax.lax.scan`.
        _split_transpose: As in `jax.lax.scan`, where it is experimental.
        plan: Reverse by the step machine, as `retape.jax.checkpointed` does.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        levels: Nested loops, at most; by default 2, and 1 with `offload`.
        segment_length: Two levels, with segments of exactly this many steps.
        policy: What a step may save, as in `jax.checkpoint`; by default nothing.
        offload: `"host"` keeps the outermost loop's carries, or the plan's snapshots,
            in the host's memory.

    Raises:
        PlanError: If an option cannot be, or two of them contradict one another; if
            `length` is negative.
        ValueError: If the lengths of `xs` differ, as `jax.lax.scan` does.
        TypeError: If the carry changes its type, as `jax.lax.scan` does.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def cumulative(xs):                       # 7 steps: no divisor is needed
        ...     step = lambda total, x: (total + x * x, total)
        ...     return retape.jax.scan(step, 0.0, xs, levels=2)[0]
        >>> print(jax.grad(cumulative)(jnp.arange(7.0)))
        [ 0.  2.  4.  6.  8. 10. 12.]

    References:
        Griewank 1992 (nested segments); Chen et al. 2016, section 4.4.
    """
    plan = budgeted(plan, memory)
    options = LoopOptions(plan, levels, segment_length, policy, offload)
    theirs = Theirs(reverse, unroll, _split_transpose)
    plainly = lambda init, xs: theirs.loop(f, init, xs, length)  # noqa: E731
    if plan is not None:
        return checkpointed(plainly, plan=options.whole_plan())(init, xs)
    steps = _length(xs, length)
    if steps is None:
        return plainly(init, xs)  # which says what is wrong
    return run_loop(partial(plainly, init, xs), ScanWay(steps, theirs, options))


@dataclass(frozen=True, slots=True)
class Theirs:
    """The options of `jax.lax.scan`."""

    reverse: bool = False
    unroll: int | bool = 1
    split_transpose: bool = False

    def loop(self, body: Body, init: Any, xs: Any, length: int | None) -> Any:
        """The innermost loop, which alone is unrolled."""
        return self._scan(body, init, xs, length, unroll=self.unroll)

    def around(self, body: Body, init: Any, xs: Any, length: int) -> Any:
        """A loop around others."""
        return self._scan(body, init, xs, length)

    def _scan(self, body: Body, init: Any, xs: Any, length: Any, **more: Any) -> Any:
        options = {"reverse": self.reverse, "_split_transpose": self.split_transpose}
        return lax.scan(body, init, xs, length, **options, **more)


@dataclass(frozen=True, slots=True)
class ScanWay:
    """How a loop is cut."""

    steps: int
    theirs: Theirs
    options: LoopOptions

    @property
    def asks_policy(self) -> bool:
        """See `Way`."""
        return self.options.policy is not None

    def run(self, body: Body, init: Any, xs: Any) -> tuple[Any, Any]:
        """The loop in segments, or as it is with a marked body."""
        cut = _segments(self.options, self.steps, init, xs)
        if len(cut.factors) > 1:
            return _Nested(body, cut, self.theirs, self.options).run(init, xs)
        body = rematerialised_body(body, self.options.policy, self.options.offload)
        return self.theirs.loop(body, init, xs, self.steps)


def _segments(options: LoopOptions, steps: int, init: Any, xs: Any) -> Nest:
    if options.segment_length is not None:
        return segmented(steps, options.segment_length)
    each = _bytes(xs, inexact=True) // max(1, steps)
    return nest(steps, options.at_most(), _bytes(init), each)


class _Nested:
    """A loop in two pieces: nested loops, then the rest."""

    def __init__(
        self,
        body: Body,
        cut: Nest,
        theirs: Theirs,
        options: LoopOptions,
    ) -> None:
        self.body = body
        self.cut = cut
        self.theirs = theirs
        self.options = options

    def run(self, init: Any, xs: Any) -> tuple[Any, Any]:
        """All steps, in order."""
        inside, rest, steps = self.cut.inside, self.cut.rest, self.cut.length
        # Whichever end is scanned last is left over.
        reverse = self.theirs.reverse
        nested = slice(rest, steps) if reverse else slice(0, inside)
        beyond = slice(0, rest) if reverse else slice(inside, steps)
        # The slice is taken inside what is marked, so that it is not kept.
        body = rematerialised_body(_indexed(self.body, xs), self.options.policy, None)
        index = jnp.arange(steps), _moving(xs)
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
        return lambda carry, xs: self.theirs.around(inner, carry, xs, length)

    def loop(self, body: Body, length: int) -> Body:
        return lambda carry, xs: self.theirs.loop(body, carry, xs, length)


# What is scanned over -----------------------------------------------------------


def _indexed(body: Body, xs: Any) -> Body:
    """The body of a loop over `(index, moving slices)` instead of `xs`."""
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, xs))
    fixed = [lax.stop_gradient(leaf) for leaf in leaves]

    def indexed(carry: Any, at: Any) -> tuple[Any, Any]:
        index, moving = at
        slices = iter(moving)
        x = [lax.dynamic_index_in_dim(leaf, index, keepdims=False) for leaf in fixed]
        x = [with_primal(next(slices), v) if is_inexact(v) else v for v in x]
        return body(carry, jax.tree.unflatten(tree, x))

    return indexed


def _moving(xs: Any) -> list[Any]:
    """The leaves of `xs` that carry a derivative."""
    return [x for x in map(jnp.asarray, jax.tree.leaves(xs)) if is_inexact(x)]


def _taken(xs: Any, part: slice) -> Any:
    return jax.tree.map(lambda x: x[part], xs)


def _folded(xs: Any, part: slice, factors: tuple[int, ...]) -> Any:
    return jax.tree.map(lambda x: x[part].reshape(*factors, *x.shape[1:]), xs)


def _unfold(y: jax.Array, factors: tuple[int, ...]) -> jax.Array:
    return y.reshape(-1, *y.shape[len(factors) :])


def _concatenated(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.concatenate([a, b])


# Sizes ----------------------------------------------------------------------------


def _length(xs: Any, length: int | None) -> int | None:
    """The number of steps; `None` if the arguments do not agree on one.

    Raises:
        PlanError: If it is negative, of which JAX makes a loop of no steps.
    """
    leaves = jax.tree.leaves(xs)
    if any(not jnp.shape(leaf) for leaf in leaves):
        return None
    found = {jnp.shape(leaf)[0] for leaf in leaves}
    try:
        found |= set() if length is None else {int(length)}
    except jax.errors.ConcretizationTypeError:
        return None
    steps = found.pop() if len(found) == 1 else None
    if steps is not None and steps < 0:
        raise PlanError(
            f"`length={length}` is not valid: it is the number of steps. Pass 0 or "
            "more."
        )
    return steps


def _bytes(tree: Any, *, inexact: bool = False) -> int:
    """Bytes of a pytree's arrays, or of those that have a derivative."""
    types = [jax.typeof(jnp.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    return sum(nbytes(t) for t in types if not inexact or is_inexact(t))
