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
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from retape._bytes import format_bytes
from retape._errors import GradientTypeError, UnsupportedError
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import wide
from retape.engines.jaxpr.api._trace import FlatCall, flatten_call
from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.jaxprs._avals import is_inexact, nbytes
from retape.engines.jaxpr.jaxprs._evaluate import stored_by, vjp_by
from retape.engines.jaxpr.jaxprs._jax_internals import (
    caller_line,
    scan_parts,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._provenance import ORIGINS, Origin
from retape.engines.jaxpr.jaxprs._rewrite import programs_of
from retape.engines.jaxpr.layers.face._checkpoint import name_of
from retape.engines.jaxpr.layers.remat._policy import is_named
from retape.engines.jaxpr.sizing._choose_settings import (
    compile_for_plan,
    default_plan,
)

Why = Literal[
    "argument", "view", "constant", "value", "carry", "snapshot", "tape", "held"
]
THERE_ANYWAY = ("argument", "view", "constant")


@dataclass(frozen=True, slots=True)
class SavedValue:
    """Something that a gradient keeps until it is used on the way back.

    Attributes:
        why: `"argument"` or `"constant"`, which are there anyway, and `"view"` of one,
            which the compiler may copy; `"value"`, computed; `"carry"` of a loop, for
            each of its trips; under a plan `"snapshot"`, `"tape"` of a stage, and
            `"held"` once for the whole sweep.
        type: Type and shape, such as `f32[8,16]`.
        nbytes: Bytes of all of it.
        source: The argument's name, or the operation.
        line: The line of the program that made it, if it is known.
        name: What `checkpoint_name` called it.
    """

    why: Why
    type: str
    nbytes: int
    source: str
    line: str = ""
    name: str | None = None

    def __str__(self) -> str:
        named = "" if self.name is None else f", named {self.name!r}"
        line = f" at {self.line}" if self.line else ""
        size, text = format_bytes(self.nbytes), f"{self.why} {self.source}"
        return f"{size:>10}  {self.type:16} {text}{named}{line}"


class _Root(NamedTuple):
    """Where a value comes from: an input, or what made it."""

    variable: Any
    key: Any
    """The variable of the outermost program: one that is called twice has one body."""
    eqn: Any = None
    name: str | None = None
    viewed: bool = False


def residuals(kept: core.ClosedJaxpr, names: Sequence[str]) -> Iterator[SavedValue]:
    """What is kept: the results of a program, whose inputs have these names."""
    jaxpr = kept.jaxpr
    seen: set[Any] = set()
    for v in jaxpr.outvars:
        root = None if isinstance(v, core.Literal) else _root(jaxpr, v)
        # The same value under two names is kept once; so is what is part of it.
        key = None if root is None else (root.key, not root.viewed or _short_type(v))
        if root is None or key in seen:
            continue
        seen.add(key)
        of = root.variable
        if root.eqn is not None:
            yield _made_by(root, v)
        elif of in jaxpr.invars:
            given: Why = "view" if root.viewed else "argument"
            name = str(names[jaxpr.invars.index(of)])
            yield SavedValue(given, _short_type(v), nbytes(v.aval), name)
        else:
            yield SavedValue(
                "constant", _short_type(v), nbytes(v.aval), "of the program"
            )


def _made_by(root: _Root, v: Any) -> SavedValue:
    """What is kept of an operation's result."""
    eqn = root.eqn
    why: Why = "value"
    source: str = eqn.primitive.name
    if source == "scan" and not root.viewed:
        body = eqn.params["jaxpr"].jaxpr
        consts, carries = scan_parts(eqn.params)
        out = body.outvars[eqn.outvars.index(root.variable)]
        if out in body.invars[consts : consts + carries]:
            why, source = "carry", f"of {eqn.params['length']} trips"
    return SavedValue(
        why, _short_type(v), nbytes(v.aval), source, caller_line(eqn), root.name
    )


_SEEN_THROUGH = ("optimization_barrier", "stop_gradient", "reduce_precision", "copy")


def _root(jaxpr: Any, v: Any, name: str | None = None, viewed: bool = False) -> _Root:
    """What a variable is: names, barriers, views and calls are looked through."""
    found = [e for e in jaxpr.eqns if v in e.outvars]
    if not found:
        return _Root(v, v, None, name, viewed)
    (eqn,) = found
    at, kind = eqn.outvars.index(v), eqn.primitive.name
    named = is_named(eqn)
    name = str(eqn.params["name"]) if named else name
    here = _Root(v, v, eqn, name, viewed)
    same = named or kind in _SEEN_THROUGH or (kind == "retape_slice" and at == 0)
    part = is_a(eqn, Also.VIEW) or kind == "retape_slice"
    if not (same or part):
        return _followed_inside(jaxpr, here)
    operand = eqn.invars[at if kind in _SEEN_THROUGH else 0]
    if isinstance(operand, core.Literal):
        return here
    of = _root(jaxpr, operand, name, viewed or not same)
    # A view of a computed value is a value of its own.
    return of if same or of.eqn is None else here


def _followed_inside(jaxpr: Any, here: _Root) -> _Root:
    """What a result of an operation is, looked for in the programs that it holds."""
    eqn = here.eqn
    bodies = programs_of(eqn)
    if len(bodies) == 1 and len(bodies[0].outvars) == len(eqn.outvars):
        return _through(jaxpr, here, bodies[0])
    return here


def _through(jaxpr: Any, here: _Root, body: Any) -> _Root:
    """What a result of a call or a loop is inside of it."""
    eqn = here.eqn
    out = body.outvars[eqn.outvars.index(here.variable)]
    inner = here if isinstance(out, core.Literal) else _root(body, out, here.name)
    if inner.eqn is not None:
        return here if eqn.primitive.name == "cond" else inner._replace(key=here.key)
    called = is_a(eqn, Also.INLINE) and len(body.invars) == len(eqn.invars)
    if called and inner.variable in body.invars:
        given = eqn.invars[body.invars.index(inner.variable)]
        if not isinstance(given, core.Literal):
            return _root(jaxpr, given, inner.name, here.viewed or inner.viewed)
    return here


def _short_type(v: Any) -> str:
    return v.aval.str_short(short_dtypes=True)


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
