"""`saved`: what waits for the reverse sweep, value by value.

`jax.vjp` hands back a function, and the arrays that it holds are what is kept. Each is
followed to where it comes from:

    an input of the function             "argument", by its name and path
    a slice of it, or another shape      "view", which the compiler may copy
    a constant                           "constant"
    an operation                         "value", with the user's line
    a loop that stacks what it is        "carry", once for each trip
    handed from trip to trip

What is reversed under a plan keeps its arguments, and its snapshots are made in the
sweep. So the pullback is traced, too: each sweep in it knows its program and its plan.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from retape._bytes import format_bytes
from retape._errors import GradientTypeError, UnsupportedError
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import wide
from retape.engines.jaxpr.api._trace import FlatCall, flatten_call
from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.jaxprs._avals import is_inexact
from retape.engines.jaxpr.jaxprs._evaluate import stored_by, vjp_by
from retape.engines.jaxpr.jaxprs._jax_internals import caller_line
from retape.engines.jaxpr.jaxprs._provenance import ORIGINS, Origin
from retape.engines.jaxpr.jaxprs._rewrite import programs_of
from retape.engines.jaxpr.layers.face._checkpoint import name_of
from retape.engines.jaxpr.layers.listing._residuals import (
    THERE_ANYWAY,
    SavedValue,
    residuals,
)
from retape.engines.jaxpr.sizing._choose_settings import (
    compile_for_plan,
    default_plan,
)


class SavedValues(tuple[SavedValue, ...]):
    """What a gradient keeps; its text has values that are alike on one line."""

    __slots__ = ()

    def __str__(self) -> str:
        lines: list[str] = []
        for value, count in Counter(self).items():
            many = f"{count} x {value.type}" if count > 1 else value.type
            lines.append(str(replace(value, type=many, nbytes=count * value.nbytes)))
        beside = sum(v.nbytes for v in self if v.why not in THERE_ANYWAY)
        lines.append(f"{format_bytes(beside):>10}  beside arguments and constants")
        return "\n".join(lines)


def saved(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> SavedValues:
    """What the gradient of a function keeps: nothing is run.

    As `jax.ad_checkpoint.print_saved_residuals`, for all of Retape's ways, too: marked
    functions and layers, policies, loops in segments, plans. A budget makes its choice,
    for which it compiles. What lives only while one piece is reversed is not listed.

    Args:
        fun: The function, of arrays or trees of them; `retape.jax.checkpointed(f,
            plan=...)` to see what a plan keeps.
        *args: Its arguments, or `jax.ShapeDtypeStruct`s of them. The gradient is by
            all that are of a floating type.
        **kwargs: Keyword arguments for `fun`.

    Returns:
        A tuple of records. Printed, it has values that are alike on one line, with
        their number and the bytes of all, and the sum.

    Raises:
        UnsupportedError: If `fun` cannot be called.
        GradientTypeError: If no argument is of a floating type.
        BudgetError: If a budget in it cannot be kept.

    Examples:
        >>> import jax.numpy as jnp, retape.jax
        >>> def block(x, w):
        ...     return jnp.tanh(jnp.sin(x) @ w)
        >>> x, w = jnp.ones((4, 8)), jnp.ones((8, 8))
        >>> sum(v.why == "value" for v in retape.jax.saved(block, x, w))
        4
        >>> marked = retape.jax.checkpoint(block)
        >>> [(v.why, v.source) for v in retape.jax.saved(marked, x, w)]
        [('argument', 'x'), ('argument', 'w')]
        >>> print(retape.jax.saved(lambda x: jnp.sum(x * x), jnp.ones(1000)))
           4.0 KiB  f32[1000]        argument x
               0 B  beside arguments and constants
    """
    if not callable(fun):
        raise UnsupportedError(
            f"`saved({fun!r})`: this cannot be called, so it has no gradient. Pass a "
            "function, then its arguments."
        )
    call = flatten_call(args, kwargs, types=True)
    moving = [i for i, v in enumerate(map(_typed, call.leaves)) if is_inexact(v)]
    if not moving:
        raise GradientTypeError(
            f"`saved({name_of(fun)}, ...)`: no argument is of a floating type, so "
            "there is no gradient that would keep anything. Pass one, such as 1.0."
        )
    kept, sweeps = _traced(fun, call, moving)
    names = _argument_names(fun, call)
    return SavedValues((*residuals(kept, names), *in_sweeps(sweeps)))


def _typed(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)


def _traced(fun: Callable[..., Any], call: FlatCall, moving: Sequence[int]) -> Any:
    """The program whose results are what is kept, and that of the way back."""

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = call.arguments(leaves)
        outs = jax.tree.leaves(fun(*args, **kwargs))
        return [out for out in map(jnp.asarray, outs) if is_inexact(out)]

    def back(leaves: Sequence[Any]) -> Any:
        outs, pull = vjp_by(flat, leaves, moving)
        return pull([jnp.ones_like(out) for out in outs])

    leaves = list(map(_typed, call.leaves))
    return stored_by(flat, leaves, moving), jax.make_jaxpr(back)(leaves)


def _argument_names(fun: Callable[..., Any], call: FlatCall) -> list[str]:
    """The name and path of each array among the arguments."""
    args, kwargs = call.arguments(call.leaves)
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"args[{i}]": a for i, a in enumerate(args)}, **kwargs}
    own = {id(leaf): i for i, leaf in enumerate(call.leaves)}
    found = [f"number {i}" for i in range(len(call.leaves))]
    for name, value in bound.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            if id(leaf) in own:
                found[own[id(leaf)]] = name + jax.tree_util.keystr(path)
    return found


def in_sweeps(back: core.ClosedJaxpr) -> Iterator[SavedValue]:
    """Snapshots and tapes of all that is reversed under a plan."""
    for origin, line in _origins(back.jaxpr):
        plan = origin.plan or default_plan()
        with wide(origin.primal):
            compiled, settings = compile_for_plan(
                plan, origin.primal, origin.active, compile_program
            )
        if settings.plain:
            continue
        each, stage = compiled.layout.snapshot_bytes(), settings.stage
        where = " in the host's memory" if settings.on_host else ""
        yield SavedValue(
            "snapshot",
            f"{settings.snapshots} x {format_bytes(each)}",
            settings.snapshots * each,
            f"of {plan}{where}",
            line,
        )
        tape = 0 if settings.direct else compiled.tape_bytes(stage)
        if tape:
            yield SavedValue("tape", "", tape, f"of a stage of {stage} steps", line)
        held = compiled.layout.kept_bytes()
        if held:
            yield SavedValue("held", "", held, "once for the whole sweep", line)


def _origins(jaxpr: Any) -> Iterator[tuple[Origin, str]]:
    for eqn in jaxpr.eqns:
        origin = ORIGINS.get(eqn.params.get("jaxpr")) if _is_call(eqn) else None
        if origin is not None and not isinstance(origin.plan, Rerun):
            yield origin, caller_line(eqn)
            continue
        for body in programs_of(eqn):
            yield from _origins(body)


def _is_call(eqn: Any) -> bool:
    return eqn.primitive.name == "retape_call"
