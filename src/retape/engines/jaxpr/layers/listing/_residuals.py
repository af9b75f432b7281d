"""Where each value that `jax.vjp` holds comes from, in the program that makes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jax.extend import core

from retape._bytes import format_bytes
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._jax_internals import (
    caller_line,
    scan_parts,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import programs_of
from retape.engines.jaxpr.layers.remat._names import is_named

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
