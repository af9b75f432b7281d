"""`grad`, `value_and_grad`, `vjp` and `checkpointed`: JAX's own calls, with a plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax

from retape.driver._progress import Progress
from retape.engines.jaxpr.api._call_cache import NEEDS_NUMBERS, Cached, is_traced_once
from retape.engines.jaxpr.api._gradient_options import (
    GradientOptions,
    check_callable,
    check_plan,
)
from retape.engines.jaxpr.api._gradient_problem import trace_gradient
from retape.engines.jaxpr.api._hosted import run_hosted
from retape.engines.jaxpr.api._known_traces import trace_once
from retape.engines.jaxpr.api._trace import FlatCall, Traced, flatten_call
from retape.engines.jaxpr.calls._rules import call, hoisted_sweep
from retape.engines.jaxpr.intake._flax import call_nnx, has_nnx, with_module
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.plan._base import Plan
from retape.plan._options import Loops
from retape.plan._support import check_no_plan
from retape.storage._disk import AnyStore

P = ParamSpec("P")
R = TypeVar("R")


def checkpointed(
    fun: Callable[P, R],
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
) -> Callable[P, R]:
    """The same function, whose reverse mode is divide and conquer.

    Everything that JAX does to functions can be done to it: `jax.grad`, `jax.vjp`,
    `jax.jvp`, `jax.vmap`, `jax.jit`, and any nesting of them. Only reverse mode
    changes: it works through `lax.while_loop`s, and its memory is what the plan says.

    Args:
        fun: A function of arrays (or pytrees of arrays) that JAX can trace. Python's
            numbers are traced too, unless `fun` needs their values.
        plan: How much memory to use; `retape.logarithmic()` by default.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        loops: "device" for loops of known trip count, for which a GPU's host does not
            wait; "host" for loops that end by themselves. By default the first where
            the program is lowered for a GPU, and the second elsewhere.

    Raises:
        PlanError: If `plan` is no plan, or `loops` no form of loops.
        UnsupportedError: When called, if the program has side effects whose results
            it uses.
        GradientTypeError: If an option of the gradient cannot be.

    Examples:
        >>> import jax, retape.jax
        >>> def halvings(x):
        ...     return jax.lax.while_loop(lambda v: v > 1.0, lambda v: v / 2, x)
        >>> float(jax.grad(retape.jax.checkpointed(halvings))(5.0))
        0.125
    """
    check_callable(fun)
    mark = functools.partial(_of_arrays, plan=check_plan(plan, loops, memory=memory))

    @functools.wraps(fun)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        whole, others = with_module(fun, args)
        if has_nnx((others, kwargs)):
            return call_nnx(whole, mark, others, kwargs)
        return mark(fun)(*args, **kwargs)

    return wrapped


def _of_arrays(fun: Callable[..., Any], plan: Plan | None) -> Callable[..., Any]:
    """`checkpointed` of what has no state."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        pieces, traced = call_traced(fun, plan, args, kwargs)
        traced.act(pieces.leaves)
        known = deduplicate(traced.program, names=True, once=is_traced_once())
        outs = call(known, plan, [*traced.consts, *pieces.leaves])
        return traced.result(outs)

    return wrapped


def grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
    store: AnyStore | None = None,
    progress: bool | Callable[[Progress], None] = False,
) -> Callable[P, Any]:
    """`jax.grad`, in sublinear memory, and through `lax.while_loop`s.

    Args:
        fun: A function whose (first) result is a scalar.
        argnums: By which positional arguments to differentiate.
        has_aux: Whether `fun` returns a pair, the second part of which is passed on.
        holomorphic: Whether `fun` is promised to be holomorphic.
        allow_int: Whether integer arguments are allowed; their gradients are of type
            `float0`, as JAX's are.
        plan: How much memory to use; `retape.logarithmic()` by default.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        loops: "device" for loops of known trip count, for which a GPU's host does not
            wait; "host" for loops that end by themselves. By default the first where
            the program is lowered for a GPU, and the second elsewhere.
        store: Where snapshots go, such as `retape.DiskStore(path)` or its path: a
            run that was killed is taken up again by the same call. The host then steers
            the run, so this is for long steps, and not under a transformation.
        progress: `True` for a bar, or a function that is told; steered by the host too.

    Returns:
        A function with `fun`'s arguments that returns the gradient, with the structure
        of the arguments; with `has_aux` a pair of that and the second part.

    Raises:
        GradientTypeError: When called, if the result is not a real scalar or an
            argument is not of a floating type.
        PlanError: If `plan` is no plan, or `loops` no form of loops, or something that
            has no effect with `store` or `progress`.

    Examples:
        >>> import jax, retape.jax
        >>> def power(x, n):
        ...     return jax.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
        >>> float(retape.jax.grad(power)(2.0, 5))     # jax.grad refuses: n is traced
        80.0
    """
    options = (argnums, has_aux, holomorphic, allow_int)
    how: Any = {"loops": loops, "store": store, "progress": progress}
    both = value_and_grad(fun, *options, plan=plan, memory=memory, **how)

    @functools.wraps(fun)
    def gradient(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def value_and_grad(
    fun: Callable[P, R],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
    store: AnyStore | None = None,
    progress: bool | Callable[[Progress], None] = False,
) -> Callable[P, tuple[R, Any]]:
    """`jax.value_and_grad`, in sublinear memory, and through `lax.while_loop`s.

    The value comes from the same sweep as the gradient, so it costs nothing.
    Arguments and errors are those of `retape.jax.grad`.

    Returns:
        A function with `fun`'s arguments that returns `(value, gradient)`; with
        `has_aux`, `((value, aux), gradient)`.

    Raises:
        GradientTypeError: If the function or an argument has no gradient.
        PlanError: If `plan` is no plan, or cannot be obeyed here.
        StoreError: If `store` cannot keep what the program has.

    Examples:
        >>> import jax, retape.jax
        >>> def root(a):       # Newton's iteration, to tolerance
        ...     def step(x): return (x + a / x) / 2
        ...     return jax.lax.while_loop(
        ...         lambda x: abs(x * x - a) > 1e-6, step, a)
        >>> value, slope = retape.jax.value_and_grad(root)(4.0)
        >>> print(f"{value:.4f} {slope:.4f}")
        2.0000 0.2500
    """
    check_callable(fun)
    hosted = store is not None or progress is not False
    plan = check_plan(plan, loops, memory=memory, hosted=hosted)
    wanted = GradientOptions(argnums, has_aux, holomorphic, allow_int)
    run = Cached(functools.partial(_both, fun, wanted, plan))

    @functools.wraps(fun)
    def both(*args: P.args, **kwargs: P.kwargs) -> Any:
        wanted.check_arguments(args)
        if hosted:
            pieces = flatten_call(args, kwargs, always=wanted.numbers(len(args)))
            problem = trace_gradient(fun, wanted, plan, pieces, pieces.leaves)
            problem.act()
            name = getattr(fun, "__qualname__", type(fun).__name__)
            found = run_hosted(problem, plan, store, progress, name)
            return wanted.join(*problem.result(*found))
        return run(args, kwargs, wanted.numbers(len(args)))

    return both


def _both(
    fun: Callable[..., Any],
    wanted: GradientOptions,
    plan: Plan | None,
    pieces: FlatCall,
    leaves: Sequence[Any],
    once: bool,
) -> Any:
    """Value and gradient in one sweep, seeded with one."""
    problem = trace_gradient(fun, wanted, plan, pieces, leaves)
    problem.act()
    if problem.has_derivative:
        jaxpr = deduplicate(problem.jaxpr, names=True, once=once)
        program, consts = hoisted_sweep(jaxpr, problem.active, plan)
        outs = call(program, plan, [*consts, *problem.values, problem.one()])
        n = len(jaxpr.out_avals)
        return wanted.join(*problem.result(outs[:n], outs[n:]))
    return wanted.join(*problem.result(*problem.still()))


def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
) -> Any:
    """`jax.vjp`, in sublinear memory, and through `lax.while_loop`s.

    Args:
        fun: Any function that JAX can trace.
        *primals: The arguments at which to evaluate it.
        has_aux: Whether `fun` returns a pair, the second part of which is passed on.
        plan: How much memory to use; `retape.logarithmic()` by default.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        loops: As for `retape.jax.grad`.

    Returns:
        `(value, pullback)`, and `aux` as a third with `has_aux`.

    Raises:
        PlanError: If `plan` is no plan, or a plan is among the primals.
        GradientTypeError: If the function or an argument has no derivative.

    Examples:
        >>> import jax, retape.jax
        >>> def halvings(x):
        ...     return jax.lax.while_loop(lambda v: v > 1.0, lambda v: v / 2, x)
        >>> value, pullback = retape.jax.vjp(halvings, 5.0)
        >>> float(value), float(pullback(1.0)[0])
        (0.625, 0.125)
    """
    for number, primal in enumerate(primals):
        check_no_plan(f"primals[{number}]", primal)
    marked = checkpointed(fun, plan=plan, memory=memory, loops=loops)
    return jax.vjp(marked, *primals, has_aux=has_aux)


def call_traced(
    fun: Callable[..., Any],
    plan: Plan | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    marked: bool = False,
) -> tuple[FlatCall, Traced]:
    """Trace with Python's numbers traced, or fixed if `fun` needs their values."""
    pieces = flatten_call(args, kwargs)
    try:
        return pieces, trace_once(fun, pieces, plan, marked=marked)
    except NEEDS_NUMBERS:
        pieces = flatten_call(args, kwargs, numbers=False)
        return pieces, trace_once(fun, pieces, plan, marked=marked)
