"""Activity: values with a derivative, and the constructs to be opened for it.

*Active* means: of a differentiable type, and depending on an active input through
differentiable operations. A loop that carries nothing active needs no reversal and
stays one opaque operation inside a step, whatever it computes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.analysis._short_loops import cheaper_stored
from retape.engines.jaxpr.jaxprs._avals import is_inexact, nbytes, struct
from retape.engines.jaxpr.jaxprs._evaluate import (
    Environment,
    begun,
    evaluate,
    jvp_by,
    which,
)
from retape.engines.jaxpr.jaxprs._jax_internals import (
    scan_parts,
    source_line,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Also, callee, is_a
from retape.engines.jaxpr.jaxprs._provenance import Apart
from retape.engines.jaxpr.jaxprs._rewrite import every_eqn, known_length
from retape.engines.jaxpr.jaxprs._subprogram import closed


def wide(jaxpr: core.ClosedJaxpr) -> AbstractContextManager[Any]:
    """The setting of 64-bit types under which a program can be traced again.

    A sweep counts in 64 bits whatever the user's setting, and a derivative or a batch
    of one must do so, too. Programs without such values keep the setting.
    """
    return jax.enable_x64(True) if _has_wide(jaxpr.jaxpr) else nullcontext()


def _has_wide(jaxpr: Any) -> bool:
    made = (v for eqn in every_eqn(jaxpr.eqns) for v in eqn.outvars)
    return any(_is_wide(v.aval) for v in chain(jaxpr.invars, made))


def _is_wide(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return False
    return np.dtype(dtype) in _WIDE


_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))


def propagate(jaxpr: core.ClosedJaxpr, active: Sequence[bool]) -> list[bool]:
    """Activity of a jaxpr's outputs, given that of its inputs."""
    passive = [False] * len(jaxpr.jaxpr.constvars)
    return evaluate(jaxpr, active, outputs, consts=passive, env=_truths())


def flow(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool]
) -> Iterator[tuple[core.JaxprEqn, list[bool], list[bool]]]:
    """Each equation of a jaxpr, with the activity of its inputs and its outputs."""
    passive = [False] * len(jaxpr.jaxpr.constvars)
    env = begun(jaxpr, active, passive, _truths())
    for eqn in jaxpr.jaxpr.eqns:
        ins = env.read_all(eqn.invars)
        outs = outputs(eqn, ins)
        yield eqn, ins, outs
        env.write(eqn.outvars, outs)


def _truths() -> Environment:
    return Environment(literal=lambda _: False)


def outputs(eqn: Any, active: Sequence[bool]) -> list[bool]:
    """Activity of an equation's outputs, given that of its inputs."""
    name, params = eqn.primitive.name, eqn.params
    if not any(active) or is_a(eqn, Also.NO_DERIVATIVE):
        return [False] * len(eqn.outvars)
    if name == "while":
        return while_carry(params, active)
    if name == "scan":
        carry, ys = scan_carry(params, active)
        return [*carry, *ys]
    if name == "cond":
        arms = [propagate(b, active[1:]) for b in params["branches"]]
        return [any(column) for column in zip(*arms, strict=True)]
    body = callee(eqn)
    # What a custom rule reads, its body need not: the rule alone decides.
    if body is not None and name != "custom_jvp_call":
        return propagate(body, active)
    return [is_inexact(v.aval) for v in eqn.outvars]


def while_carry(params: dict[str, Any], active: Sequence[bool]) -> list[bool]:
    """Activity of the carry of a `while`: the least fixed point."""
    skip = params["cond_nconsts"]
    consts = list(active[skip : skip + params["body_nconsts"]])
    carry = list(active[skip + params["body_nconsts"] :])
    while True:
        after = propagate(params["body_jaxpr"], consts + carry)
        joined = [a or b for a, b in zip(carry, after, strict=True)]
        if joined == carry:
            return carry
        carry = joined


def scan_carry(
    params: dict[str, Any], active: Sequence[bool]
) -> tuple[list[bool], list[bool]]:
    """Activity of the carry and of the stacked outputs of a `scan`."""
    nc, nk = scan_parts(params)
    consts, carry, xs = active[:nc], list(active[nc : nc + nk]), active[nc + nk :]
    while True:
        after = propagate(closed(params["jaxpr"]), [*consts, *carry, *xs])
        joined = [a or b for a, b in zip(carry, after[:nk], strict=True)]
        if joined == carry:
            return carry, after[nk:]
        carry = joined


def programs_inside(
    eqn: core.JaxprEqn, active: Sequence[bool]
) -> Iterator[tuple[core.ClosedJaxpr, list[bool]]]:
    """The programs in an equation that are differentiated, and their inputs' activity.

    Not that of a `custom_jvp`: its rule is differentiated in its stead.
    """
    p = eqn.params
    match eqn.primitive.name:
        case "while":
            skip, n = p["cond_nconsts"], p["body_nconsts"]
            yield p["body_jaxpr"], [*active[skip : skip + n], *while_carry(p, active)]
        case "scan":
            nc, nk = scan_parts(p)
            carry, _ = scan_carry(p, active)
            yield closed(p["jaxpr"]), [*active[:nc], *carry, *active[nc + nk :]]
        case "cond":
            for branch in p["branches"]:
                yield branch, list(active[1:])
        case "custom_jvp_call":
            return
        case _:
            body = callee(eqn)
            if body is not None:
                yield body, list(active)


def must_open(eqn: Any, active: Sequence[bool], grain: int) -> bool:
    """Tell whether steps must begin and end inside this equation.

    A `while` that carries a derivative: always. A `scan`: if storing all its
    residuals would take more than `grain` bytes, and more than to reverse it from
    within would. Everything else: if it contains one, but for a call that is to stay
    one operation (`Apart`). With a grain of 0 every `scan`.
    """
    if not any(outputs(eqn, active)) or isinstance(eqn.params.get("plan"), Apart):
        return False
    name, params = eqn.primitive.name, eqn.params
    if name == "while":
        return True
    if name == "custom_jvp_call":
        body = callee(eqn)
        opens = body is not None and opens_inside(body, active, grain)
        return opens and not rule_is_linear(eqn, active)
    bodies = list(programs_inside(eqn, active))
    if any(opens_inside(*each, grain) for each in bodies):
        return True
    if name != "scan" or known_length(eqn) == 1:
        return False
    ((body, flags),) = bodies
    if known_length(eqn) * tape_bytes(body, flags) <= grain:
        return False
    nc, nk = scan_parts(params)
    carried = slice(nc, nc + nk)
    return not (grain and cheaper_stored(body, flags, carried, known_length(eqn)))


def rule_is_linear(eqn: Any, active: Sequence[bool]) -> bool:
    """True if JAX can transpose a `custom_jvp` rule: no `while` carries its tangents.

    Then the call stays whole and keeps its rule, whatever loops its primal has; an
    implicit derivative of a root finder is the main case. Else it is opened, and what
    is reversed is its primal.
    """
    avals = [v.aval for v in eqn.invars]
    moving = which(active)

    def forward(*values: Any) -> Any:
        point, tangents = list(values[: len(avals)]), values[len(avals) :]

        def rule(*given: Any) -> Any:
            with eqn.ctx.manager:
                params = eqn.primitive.get_bind_params(eqn.params)
                return eqn.primitive.bind(*given, **params)

        return jvp_by(rule, point, moving, tangents)[1]

    structs = [struct(a) for a in avals]
    rule = jax.make_jaxpr(forward)(*structs, *(structs[i] for i in moving))
    flags = [False] * len(avals) + [True] * len(moving)
    if not opens_inside(rule, flags, sys.maxsize):
        return True
    _refuse_unread(eqn, moving, rule)
    return False


def _refuse_unread(eqn: Any, moving: Sequence[int], rule: core.ClosedJaxpr) -> None:
    """Refuse to reverse a primal that does not read what its rule differentiates by."""
    body, n = closed(eqn.params["call_jaxpr"]), len(eqn.invars)
    for k, i in enumerate(moving):
        by_rule = propagate(rule, [j == n + k for j in range(n + len(moving))])
        by_body = propagate(body, [j == i for j in range(n)])
        if any(r and not b for r, b in zip(by_rule, by_body, strict=True)):
            raise UnsupportedError(
                f"The `jax.custom_jvp` rule called at {source_line(eqn)} has a "
                "`while_loop` that carries tangents, so that JAX cannot transpose it, "
                f"and gives a derivative with respect to argument {i}, which the "
                "function itself "
                "does not read: its primal cannot be reversed in the rule's stead. "
                "Give it a `jax.custom_vjp`, or a rule whose loops are `jax.lax.scan`."
            )


def opens_inside(jaxpr: core.ClosedJaxpr, active: Sequence[bool], grain: int) -> bool:
    """Tell whether any equation of this jaxpr must be opened."""
    return any(must_open(eqn, ins, grain) for eqn, ins, _ in flow(jaxpr, active))


def tape_bytes(jaxpr: core.ClosedJaxpr, active: Sequence[bool]) -> int:
    """Upper estimate of the residuals of one evaluation: every active value kept."""
    return sum(eqn_tape_bytes(*each) for each in flow(jaxpr, active))


def eqn_tape_bytes(eqn: Any, ins: Sequence[bool], outs: Sequence[bool]) -> int:
    """The same estimate for one equation, looking into scans and calls."""
    if not any(outs):
        return 0
    if eqn.primitive.name == "scan":
        ((body, flags),) = programs_inside(eqn, ins)
        return known_length(eqn) * tape_bytes(body, flags)
    if is_a(eqn, Also.REMAT):
        return sum(nbytes(a.aval) for a in eqn.invars)
    body = callee(eqn)
    if body is not None:
        return tape_bytes(body, ins)
    return sum(nbytes(v.aval) for v, a in zip(eqn.outvars, outs, strict=True) if a)
