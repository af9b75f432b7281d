"""`fori_loop` and `while_loop`: JAX's, whose reverse mode takes as little as asked.

A loop whose number of trips is known while it is traced becomes a `scan`; any other is
reversed by the step machine. What a `while_loop`'s test depends on is found by itself
(`analysis/_trip_count`): if that needs no traced value, the loop is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
from jax import lax
from jax.core import Tracer
from jax.export import is_symbolic_dim

from retape._errors import PlanError
from retape.engines.jaxpr.analysis._known_values import Known, constant
from retape.engines.jaxpr.analysis._trip_count import trip_bounds
from retape.engines.jaxpr.api._transform import checkpointed
from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.jaxprs._jax_internals import classic_rules
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._scan import ScanWay, Theirs, scan
from retape.engines.jaxpr.layers.loops._traced_loop import run_loop
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._options import Memory

Value = TypeVar("Value")


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
    plan = budgeted(plan, memory)
    options = LoopOptions(plan, levels, segment_length, policy, offload)
    loop = partial(lax.fori_loop, body_fun=body_fun, unroll=unroll)
    if _is_unknown(lower) or _is_unknown(upper):
        _only_plan(options, "fori_loop", "its bounds are traced")
        run = checkpointed(
            lambda lower, upper, init: loop(lower, upper, init_val=init),
            plan=options.whole_plan(),
        )
        return run(lower, upper, init_val)
    if plan is not None:
        run = checkpointed(
            lambda init: loop(lower, upper, init_val=init), plan=options.whole_plan()
        )
        return run(init_val)
    _check_bounds(lower, upper)
    steps = max(0, int(upper) - int(lower))
    way = ScanWay(steps, Theirs(unroll=unroll or 1), options)
    return run_loop(partial(loop, lower, upper, init_val=init_val), way)


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
    plan = budgeted(plan, memory)
    options = LoopOptions(plan, levels, segment_length, policy, offload)
    count = None if plan is not None else _trips(cond_fun, body_fun, init_val)
    if count is None:
        _only_plan(
            options, "while_loop", "its test needs values known only at run time"
        )
        run = checkpointed(
            lambda init: lax.while_loop(cond_fun, body_fun, init),
            plan=options.whole_plan(),
        )
        return run(init_val)
    step = lambda value, _: (body_fun(value), None)  # noqa: E731
    return scan(step, init_val, None, count, **options.as_keywords())[0]


def _trips(cond: Callable[..., Any], body: Callable[..., Any], init: Any) -> int | None:
    """How often the body runs; `None` if that is not known while tracing."""
    loop = partial(lax.while_loop, cond, body)
    with jax.disable_jit(False), classic_rules():
        made = as_classic(jax.make_jaxpr(loop)(init))
    pairs = zip(jax.tree.leaves(init), made.in_avals, strict=True)
    env = Known(made, [constant(*pair) for pair in pairs])
    for eqn in made.eqns:
        if eqn.primitive.name == "while":
            found = trip_bounds(eqn, env.read_all(eqn.invars))
            return found.least if found.least == found.most else None
        env.learn(eqn)
    return None


def _is_unknown(bound: Any) -> bool:
    """Whether a bound has no number yet: traced, or a symbolic size of `jax.export`."""
    return isinstance(bound, Tracer) or is_symbolic_dim(bound)


def _check_bounds(lower: Any, upper: Any) -> None:
    """Let JAX refuse what it refuses: a loop with a body that does nothing."""
    jax.eval_shape(lambda: lax.fori_loop(lower, upper, lambda _, value: value, 0))


def _only_plan(options: LoopOptions, name: str, why: str) -> None:
    for option in ("levels", "segment_length", "policy"):
        if getattr(options, option) is not None:
            raise PlanError(
                f"`{option}={getattr(options, option)!r}` cannot be kept by this "
                f"`{name}`: {why}, so the number of trips is unknown while tracing. "
                "Pass a `plan`, such as `retape.logarithmic()`, instead."
            )
