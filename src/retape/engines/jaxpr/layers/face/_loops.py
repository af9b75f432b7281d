"""`scan`, `fori_loop` and `while_loop`, whose reverse mode takes as little as asked.

JAX writes the loop, and the loop that it wrote is run in another way. One whose number
of trips is known while tracing is cut into segments: a `scan`, and a `while` whose test
depends on nothing that has to be traced. Any other is reversed by the step machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from jax import lax

from retape.engines.jaxpr.layers.loops._cut_loop import Unknown, run_loop
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.engines.jaxpr.layers.strategies._within_budget import as_policy
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._options import Memory

Value = TypeVar("Value")
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
    options = _options(plan, memory, levels, segment_length, policy, offload)
    how = {"reverse": reverse, "unroll": unroll, "_split_transpose": _split_transpose}
    return run_loop(partial(lax.scan, f, init, xs, length, **how), options)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Value], Value],
    init_val: Value,
    *,
    unroll: int | bool | None = None,
    plan: Plan | None = None,
    memory: float | str | None = None,
    levels: int | None = None,
    segment_length: int | None = None,
    policy: Policy | Plan | None = None,
    offload: Memory | None = None,
) -> Value:
    """`jax.lax.fori_loop`, reversible for bounds of any kind, in sublinear memory.

    With bounds that are known while tracing the loop is a `retape.jax.scan`, to which
    the options belong. With traced bounds it is reversed under `plan`, which is
    `retape.logarithmic()` if nothing is said.

    Args:
        lower: The first index.
        upper: The index to stop before.
        body_fun: `(index, value) -> value`.
        init_val: The first value.
        unroll: As in `jax.lax.fori_loop`.
        plan: As in `retape.jax.scan`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        levels: As in `retape.jax.scan`; needs known bounds.
        segment_length: As in `retape.jax.scan`; needs known bounds.
        policy: As in `retape.jax.scan`; needs known bounds.
        offload: As in `retape.jax.scan`.

    Raises:
        PlanError: If an option cannot be, or needs known bounds.
        TypeError: If the bounds are no whole numbers, or of different types, as
            `jax.lax.fori_loop` does.

    Examples:
        >>> import jax, retape.jax
        >>> def power(x, n):
        ...     return retape.jax.fori_loop(0, n, lambda i, y: y * x, 1.0)
        >>> float(jax.grad(power)(2.0, 5))
        80.0
    """
    options = _options(plan, memory, levels, segment_length, policy, offload)
    loop = partial(lax.fori_loop, lower, upper, body_fun, init_val, unroll=unroll)
    return run_loop(loop, options, Unknown("fori_loop", "its bounds are traced"))


def while_loop(
    cond_fun: Callable[[Value], Any],
    body_fun: Callable[[Value], Value],
    init_val: Value,
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    levels: int | None = None,
    segment_length: int | None = None,
    policy: Policy | Plan | None = None,
    offload: Memory | None = None,
) -> Value:
    """`jax.lax.while_loop`, which `jax.grad` can differentiate.

    If the test depends on integers that are known while tracing (a counter and its
    bound, say), the trips are counted and the loop is a `retape.jax.scan`. Otherwise
    it is reversed under `plan`, which is `retape.logarithmic()` if nothing is said.

    Args:
        cond_fun: Whether to go on.
        body_fun: One trip.
        init_val: The first value.
        plan: As in `retape.jax.scan`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        levels: As in `retape.jax.scan`; needs a counted loop.
        segment_length: As in `retape.jax.scan`; needs a counted loop.
        policy: As in `retape.jax.scan`; needs a counted loop.
        offload: As in `retape.jax.scan`.

    Raises:
        PlanError: If an option cannot be, or needs a counted loop.

    Examples:
        >>> import jax, retape.jax
        >>> def halvings(x):
        ...     return retape.jax.while_loop(lambda v: v > 1.0, lambda v: v / 2, x)
        >>> float(jax.grad(halvings)(5.0))
        0.125
    """
    options = _options(plan, memory, levels, segment_length, policy, offload)
    loop = partial(lax.while_loop, cond_fun, body_fun, init_val)
    why = "its test needs values known only at run time"
    return run_loop(loop, options, Unknown("while_loop", why))


def _options(
    plan: Plan | None,
    memory: float | str | None,
    levels: int | None,
    segment_length: int | None,
    policy: Policy | Plan | None,
    offload: Memory | None,
) -> LoopOptions:
    """What was passed, checked: a budget is a plan, and as a policy is one, too."""
    plan, policy = budgeted(plan, memory), as_policy(policy)
    return LoopOptions(plan, levels, segment_length, policy, offload)
