"""`while_loop` and `scan` with the signatures of `equinox.internal`.

A program changes its import and nothing else. What is different: all derivatives of
every order exist (forward mode, Hessians), a bound on the number of steps is not
needed, memory may be given in bytes by `plan=`, and a buffer may be read and may be
written twice: it is an array, and its gradient is right whatever is done to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax

from retape._arguments import word_of
from retape._errors import PlanError
from retape.equinox._buffers import as_arrays, as_buffers, like
from retape.equinox._filtered import filter_checkpointed
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space

Kind = Literal["lax", "checkpointed", "bounded"]
ScanKind = Literal["lax", "checkpointed"]
Buffers = Callable[[Any], Any]


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
    buffers: Buffers | None = None,
    kind: Kind,
    checkpoints: int | None = None,
    base: int = 16,
    plan: Plan | None = None,
) -> Any:
    """Loop while a condition holds, as `equinox.internal.while_loop`.

    Args:
        cond_fun: From the carry to whether there is another step.
        body_fun: From one carry to the next, of the same shapes and types.
        init_val: The first carry, a pytree of arrays.
        max_steps: Ends the loop after so many steps; `None` for no bound.
        buffers: From the carry to those arrays in it (one or several) that `body_fun`
            wants to write by `.at[i].set(x, pred=...)`.
        kind: "checkpointed" or "bounded" for a loop with all derivatives, which are the
            same loop here; "lax" for JAX's own, without reverse mode.
        checkpoints: Snapshots in memory; short for
            `plan=retape.fixed_space(snapshots=checkpoints)`.
        base: Without effect: there is no nest of bounded loops.
        plan: How much memory to use, for example `retape.within("1 GB")`. By default
            `retape.logarithmic()`.

    Returns:
        The last carry.

    Raises:
        PlanError: If `kind` is none of the three, or both `checkpoints` and `plan` are
            given.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from retape.equinox import while_loop
        >>> def halvings(x):
        ...     return while_loop(
        ...         lambda v: v > 1, lambda v: v / 2, x, kind="checkpointed",
        ...         checkpoints=3)
        >>> float(jax.grad(halvings)(5.0)), float(jax.jvp(halvings, (5.0,), (1.0,))[1])
        (0.125, 0.125)
    """
    del base
    word_of("kind", kind, get_args(Kind))
    plan = _plan_of(checkpoints, plan)
    init = jax.tree.map(jnp.asarray, as_arrays(init_val))

    def going(carry: Any) -> Any:
        step, value = carry
        more = cond_fun(as_buffers(value, buffers))
        return more if max_steps is None else jnp.logical_and(more, step < max_steps)

    def body(carry: Any) -> Any:
        step, value = carry
        after = as_arrays(body_fun(as_buffers(value, buffers)))
        return (None if step is None else step + 1), after

    def run(value: Any) -> Any:
        step = None if max_steps is None else jnp.asarray(0)
        return lax.while_loop(going, body, (step, value))[1]

    after = run(init) if kind == "lax" else filter_checkpointed(run, plan, init)
    return like(after, init_val)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    *,
    buffers: Buffers | None = None,
    kind: ScanKind,
    checkpoints: int | Literal["all"] | None = None,
    plan: Plan | None = None,
) -> tuple[Any, Any]:
    """Scan over leading axes, as `equinox.internal.scan`.

    Args:
        f: From a carry and a row to the next carry and a row of results.
        init: The first carry, a pytree of arrays.
        xs: A pytree of arrays with a common leading axis of `length`.
        length: The number of steps; needed only if `xs` has no arrays.
        buffers: As for `while_loop`.
        kind: "checkpointed", or "lax" for JAX's own scan.
        checkpoints: Snapshots in memory, or "all" for one at each step.
        plan: How much memory to use, in place of `checkpoints`.

    Returns:
        The last carry, and the rows of results, stacked.

    Raises:
        PlanError: If `kind` is neither, or both `checkpoints` and `plan` are given.
        ValueError: If lengths differ, as JAX raises it.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from retape.equinox import scan
        >>> def total(x):
        ...     carry, rows = scan(
        ...         lambda c, r: (c * r, c), 1.0, x, kind="checkpointed")
        ...     return carry + rows[-1]
        >>> print(jax.grad(total)(jnp.array([2.0, 3.0, 4.0])))
        [15. 10.  6.]
    """
    word_of("kind", kind, get_args(ScanKind))
    given = init
    init, xs = jax.tree.map(jnp.asarray, as_arrays((init, xs)))
    if checkpoints == "all":
        sizes = {x.shape[0] for x in jax.tree.leaves(xs)}
        checkpoints = max(1, *sizes, length or 0)
    plan = _plan_of(checkpoints, plan)

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        return as_arrays(f(as_buffers(carry, buffers), row))

    def run(init: Any, xs: Any) -> Any:
        return lax.scan(body, init, xs, length)

    if kind == "lax":
        carry, ys = run(init, xs)
    else:
        carry, ys = filter_checkpointed(run, plan, init, xs)
    return like(carry, given), ys


def _plan_of(checkpoints: int | None, plan: Plan | None) -> Plan | None:
    if checkpoints is None:
        return plan
    if plan is not None:
        raise PlanError(
            f"`checkpoints={checkpoints!r}` and `plan={plan!r}` both say how much "
            "memory to use. Pass one of them."
        )
    return fixed_space(snapshots=checkpoints)
