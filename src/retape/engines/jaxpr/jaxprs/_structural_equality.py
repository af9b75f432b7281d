"""Programs that do the same, found to be so, and then differentiated and lowered once.

JAX's caches, and ours, know a program by its identity. A function that is traced at
every call, as functions are outside of `jit`, would be differentiated, transposed and
compiled at every call; and so would each of the 48 equal stretches into which a network
of equal layers is cut. So an equal program that was seen before takes the place of one.

JAX wraps a custom rule anew each time that a program is traced, and Python may have
changed what it does: a global, a closure. So a rule is told by the program that it is
now: it is traced when the program that calls it is seen, and kept beside that. A rule
that calls its own function (that of `jax.nn.relu` does) would be traced for ever, so
inside itself it is a number: how many rules further out it stands.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact, struct
from retape.engines.jaxpr.jaxprs._caches import forgotten
from retape.engines.jaxpr.jaxprs._evaluate import bind, jvp_by, vjp_by
from retape.engines.jaxpr.jaxprs._jax_internals import rule_functions, source_line
from retape.engines.jaxpr.jaxprs._primitive_table import Also, has_no_rule, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains, every_eqn, programs_of

RULE_PARAMETERS = frozenset(("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"))
"""Parameters of a call that are its rule."""

_DEEPEST = 6
"""Rules in rules in rules: then one is taken to be another each time."""


class RuleTrace(NamedTuple):
    """A rule as a program, and the rules in that."""

    jaxpr: core.ClosedJaxpr
    inner: tuple[Told, ...]


Told: TypeAlias = RuleTrace | int | core.ClosedJaxpr
"""A rule; or a program of ours that calls some, which is found again by itself."""


class _UntraceableError(Exception):
    """A rule that is never the same."""


def rule_traces(jaxpr: Any) -> tuple[Told, ...] | None:
    """The rules that a program calls, in order; `None` if one cannot be told."""
    try:
        return tuple(_traces(jaxpr, ()))
    except _UntraceableError:
        return None


def is_ruled(eqn: core.JaxprEqn) -> bool:
    """Whether an operation is a call with a rule of its own."""
    return not RULE_PARAMETERS.isdisjoint(eqn.params)


def _traces(jaxpr: Any, under: tuple[Any, ...]) -> list[Told]:
    found: list[Told] = []
    for eqn in jaxpr.eqns:
        if is_ruled(eqn):
            found.append(_trace_of(eqn, under))
        if is_a(eqn, Also.OWN_SWEEP) and "plan" in eqn.params:
            ours = [v for v in eqn.params.values() if isinstance(v, core.ClosedJaxpr)]
            found += [program for program in ours if contains(program, is_ruled)]
            continue
        for inner in programs_of(eqn):
            found += _traces(inner, under)
    return found


def _trace_of(eqn: core.JaxprEqn, under: tuple[Any, ...]) -> RuleTrace | int:
    functions = rule_functions(eqn)
    # Of a rule that is told which tangents are zero there are many.
    if functions is None or eqn.params.get("symbolic_zeros") or len(under) > _DEEPEST:
        raise _UntraceableError
    me = functions, tuple(a.aval for a in eqn.invars)
    if me in under:
        return under[::-1].index(me)
    try:
        types = [struct(a.aval) for a in eqn.invars]
        made = jax.make_jaxpr(_derivative(eqn))(*types)
    except Exception as error:
        # It wants numbers, or the derivative is none: what it is shows later.
        raise _UntraceableError from error
    if made.effects:
        raise _UntraceableError
    return RuleTrace(made, tuple(_traces(made, (*under, me))))


def _derivative(eqn: core.JaxprEqn) -> Any:
    """The derivative of an operation: at each point, along it or of its results."""
    chosen = [i for i, a in enumerate(eqn.invars) if is_inexact(a.aval)]
    moved = [i for i, v in enumerate(eqn.outvars) if is_inexact(v.aval)]

    def both(*values: Any) -> Any:
        def run(*values: Any) -> list[Any]:
            outs = bind(eqn, list(values))
            return [outs[i] for i in moved]

        if "jvp_jaxpr_fun" in eqn.params:
            return jvp_by(run, values, chosen, [values[i] for i in chosen])
        outs, pull = vjp_by(run, values, chosen)
        return outs, pull(outs)

    return both


_MOST_PROGRAMS = 256
"""Programs that are remembered, the last ones used."""

_ALIKE = 8
"""Of those with one outline: a rule that cannot be told is never the same."""

_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)

Rules = tuple[Told, ...] | None

_known_programs: OrderedDict[Any, list[tuple[core.ClosedJaxpr, Rules]]] = OrderedDict()
_lock = threading.Lock()
forgotten(_known_programs.clear)


def deduplicate(
    closed: core.ClosedJaxpr, *, names: bool = False, once: bool = False
) -> core.ClosedJaxpr:
    """The first program that was alike, or this one if there was none.

    Args:
        closed: The program.
        names: Whether operations must stand in scopes of the same names, too: those
            under which a profile shows them.
        once: Whether the program is seen once in all, inside `jax.jit`. Then it is not
            looked up if it calls custom rules: to tell them takes tracing each, a
            seventh of lowering an adaptive solve of diffrax's.
    """
    if once and contains(closed, is_ruled):
        return closed
    key = _outline(closed.jaxpr), _scopes(closed.jaxpr) if names else None
    # As they are now: what a rule does may change as long as it is not traced.
    rules = rule_traces(closed.jaxpr)
    with _lock:
        found = _known_programs.setdefault(key, [])
        _known_programs.move_to_end(key)
        for other, others in found:
            if other is closed or (
                _same_but_rules(closed, other) and same_rules(rules, others)
            ):
                return other
        found[:] = [(closed, rules), *found[: _ALIKE - 1]]
        if len(_known_programs) > _MOST_PROGRAMS:
            _known_programs.popitem(last=False)
        return closed


def _outline(jaxpr: core.Jaxpr) -> Any:
    """A hash key that equal programs share."""
    ins = tuple(v.aval for v in jaxpr.invars)
    return ins, tuple(eqn.primitive.name for eqn in jaxpr.eqns)


def _scopes(jaxpr: core.Jaxpr) -> tuple[str, ...]:
    return tuple(str(e.source_info.name_stack) for e in every_eqn(jaxpr.eqns))


def same_rules(a: Rules, b: Rules) -> bool:
    """Tell whether the rules that two programs call do the same."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(_same_rule(x, y) for x, y in zip(a, b, strict=True))


def _same_rule(a: Told, b: Told) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    if isinstance(a, core.ClosedJaxpr) or isinstance(b, core.ClosedJaxpr):
        return a is b
    return _same_but_rules(a.jaxpr, b.jaxpr) and same_rules(a.inner, b.inner)


def alike(a: core.ClosedJaxpr, b: core.ClosedJaxpr) -> bool:
    """Tell whether two programs are the same but for the names of their variables."""
    if a is b:
        return True
    return _same_but_rules(a, b) and same_rules(*map(rule_traces, (a.jaxpr, b.jaxpr)))


def _same_but_rules(a: core.ClosedJaxpr, b: core.ClosedJaxpr) -> bool:
    """The same, whatever the rules in them do."""
    if len(a.consts) != len(b.consts):
        return False
    if any(x is not y for x, y in zip(a.consts, b.consts, strict=True)):
        return False
    return _same_program(a.jaxpr, b.jaxpr)


def _same_program(a: core.Jaxpr, b: core.Jaxpr) -> bool:
    name: dict[Any, Any] = {}
    return (
        len(a.eqns) == len(b.eqns)
        and a.effects == b.effects
        and _bind_names(name, a.constvars, b.constvars)
        and _bind_names(name, a.invars, b.invars)
        and all(_same_eqn(name, x, y) for x, y in zip(a.eqns, b.eqns, strict=True))
        and _same_names(name, a.outvars, b.outvars)
    )


def _same_eqn(name: dict[Any, Any], a: Any, b: Any) -> bool:
    return (
        a.primitive is b.primitive
        and a.effects == b.effects
        and a.ctx == b.ctx
        and _same_names(name, a.invars, b.invars)
        and _same_params(_without_rule(a), _without_rule(b))
        and (not _is_named(a) or source_line(a) == source_line(b))
        and _bind_names(name, a.outvars, b.outvars)
    )


def _is_named(eqn: core.JaxprEqn) -> bool:
    """Tell whether errors and warnings name the line of an operation.

    Of two functions that do the same at two lines, each is told of its own.
    """
    return eqn.primitive.name == "custom_vjp_call" or has_no_rule(eqn)


def _without_rule(eqn: Any) -> Mapping[str, Any]:
    if not is_ruled(eqn):
        return eqn.params
    return {k: v for k, v in eqn.params.items() if k not in RULE_PARAMETERS}


def _bind_names(name: dict[Any, Any], a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Note which variable of the one stands for which of the other."""
    if len(a) != len(b) or any(x.aval != y.aval for x, y in zip(a, b, strict=True)):
        return False
    name.update(zip(a, b, strict=True))
    return True


def _same_names(name: dict[Any, Any], a: Sequence[Any], b: Sequence[Any]) -> bool:
    if len(a) != len(b):
        return False
    return all(_same_atom(name, x, y) for x, y in zip(a, b, strict=True))


def _same_atom(name: dict[Any, Any], a: Any, b: Any) -> bool:
    if isinstance(a, core.Literal) or isinstance(b, core.Literal):
        return type(a) is type(b) and a.aval == b.aval and _same_value(a.val, b.val)
    return name[a] is b


def _same_value(a: Any, b: Any) -> bool:
    """By their bits: zeros have signs."""
    if a is b:
        return True
    if not (isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS)):
        return False
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def _same_params(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_same_param(a[k], b[k]) for k in a)


def _same_param(a: Any, b: Any) -> bool:
    """Of what cannot be compared, only a thing and itself are the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, core.ClosedJaxpr):
        return _same_but_rules(a, b)
    if isinstance(a, core.Jaxpr):
        return _same_program(a, b)
    if isinstance(a, tuple | list):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(_same_param(x, y) for x, y in pairs)
    if isinstance(a, _NUMBERS):
        return _same_value(a, b)
    try:
        return bool(hash(a) == hash(b) and a == b)
    except (TypeError, ValueError):
        return False
