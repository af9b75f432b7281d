"""Primitives that are neither JAX's nor ours, seen through their own implementation.

A package may define primitives of its own (Equinox's loops do: identities that raise
under `vmap`, writes that may be masked). What such a primitive computes is what its
`impl` computes, and an `impl` made of JAX operations can be traced like any function.
Nothing here knows a package's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact, struct
from retape.engines.jaxpr.jaxprs._evaluate import (
    Environment,
    begun,
    jvp_by,
    vjp_by,
    which,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains


def implementation(eqn: Any) -> core.ClosedJaxpr | None:
    """The implementation of an equation as operations of other primitives; or `None`.

    JAX's own primitives are not made of others.
    """
    primitive = eqn.primitive
    impl = getattr(primitive, "impl", None)
    if impl is None or eqn.effects or _is_of_jax(impl):
        return None
    params = primitive.get_bind_params(eqn.params)

    def run(*values: Any) -> Any:
        return impl(*values, **params)

    structs = [struct(a.aval) for a in eqn.invars]
    try:
        with eqn.ctx.manager:
            made = jax.make_jaxpr(run)(*structs)
    except Exception:
        # It wants concrete values, or refuses to be traced: it stays what it is.
        return None
    same = [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
    if made.effects or contains(made, lambda inner: inner.primitive is primitive):
        return None
    return made if [(a.shape, a.dtype) for a in made.out_avals] == same else None


def _is_of_jax(impl: Any) -> bool:
    """True if an implementation is JAX's (most are one function, given the primitive).

    Tracing those would find a call of the primitive itself, a millisecond each.
    """
    module = getattr(getattr(impl, "func", impl), "__module__", None) or ""
    return module.partition(".")[0] in ("jax", "jaxlib")


def passed_through(eqn: Any, active: Sequence[bool]) -> int | None:
    """Which operand an equation returns unchanged, derivative and all; or `None`."""
    if len(eqn.outvars) != 1:
        return None
    if eqn.primitive.name == "copy":
        return 0
    body = implementation(eqn)
    if body is None:
        return None
    index = _sources(body.jaxpr)[0]
    if not isinstance(index, int):
        return None
    return index if not any(active) or _pulls_to(eqn, active, index) else None


def _pulls_to(eqn: Any, active: Sequence[bool], index: int) -> bool:
    """Tell whether an equation's pullback gives all of a cotangent to one operand.

    A primitive whose value is an operand's may still scale its cotangent, or refuse it.
    """
    moving = which(active)
    structs = [struct(a.aval) for a in eqn.invars]

    def pull(cotangent: Any, *values: Any) -> Any:
        _, back = vjp_by(_bound_as_is(eqn), values, moving)
        return back([cotangent])

    (out,) = eqn.outvars
    try:
        with eqn.ctx.manager:
            made = jax.make_jaxpr(pull)(struct(out.aval), *structs)
    except Exception:
        # It refuses reverse mode: the equation stays, to say so where it matters.
        return False
    want = [0 if i == index else _ZERO for i in moving]
    return not made.effects and _sources(made.jaxpr) == want


def derives_itself(eqn: Any) -> bool:
    """True if an equation is linear in its inexact operands, by its own derivative.

    That of a primitive which is not JAX's is whatever its author says. If it is the
    very same operation on tangents, it is that of the primitive's implementation.
    """
    n = len(eqn.invars)
    moving = which(is_inexact(v.aval) for v in eqn.invars)
    structs = [struct(v.aval) for v in eqn.invars]

    def forward(*values: Any) -> Any:
        return jvp_by(_bound_as_is(eqn), values[:n], moving, values[n:])[1]

    try:
        with eqn.ctx.manager:
            made = jax.make_jaxpr(forward)(*structs, *(structs[i] for i in moving))
    except Exception:
        return False
    along = {i: n + k for k, i in enumerate(moving)}
    wanted = [along.get(i, i) for i in range(n)]
    found = _depends(made.jaxpr)
    last = [e for e in made.eqns if made.jaxpr.outvars[0] in e.outvars]
    if made.effects or len(last) != 1 or last[0].primitive is not eqn.primitive:
        return False
    return [found(a) for a in last[0].invars] == wanted and last[0].params == eqn.params


def _bound_as_is(eqn: Any) -> Callable[..., Any]:
    """An equation's primitive as a function to a list."""
    params = eqn.primitive.get_bind_params(eqn.params)

    def run(*values: Any) -> list[Any]:
        out = eqn.primitive.bind(*values, **params)
        return list(out) if eqn.primitive.multiple_results else [out]

    return run


_ZERO = "zero"


def _sources(jaxpr: Any) -> list[Any]:
    """For each output: the input that it is, by number, or `_ZERO`, or `None`."""
    return [*map(_depends(jaxpr), jaxpr.outvars)]


def _depends(jaxpr: Any) -> Callable[[Any], Any]:
    """The same for any of a jaxpr's atoms."""
    unknown = [None] * len(jaxpr.constvars)
    env = begun(jaxpr, range(len(jaxpr.invars)), unknown, Environment(_zero_or_unknown))
    for eqn in jaxpr.eqns:
        env.run(eqn, _moved)
    return env.read


def _zero_or_unknown(literal: core.Literal) -> Any:
    return _ZERO if np.ndim(literal.val) == 0 and not literal.val else None


def _moved(eqn: Any, ins: Sequence[Any]) -> list[Any]:
    name = eqn.primitive.name
    if name == "copy" or (name == "broadcast_in_dim" and ins[0] == _ZERO):
        return [ins[0]]
    if is_a(eqn, Also.JIT):
        inner = _sources(eqn.params["jaxpr"].jaxpr)
        return [ins[s] if isinstance(s, int) else s for s in inner]
    body = implementation(eqn)
    if body is None:
        return [None] * len(eqn.outvars)
    return [ins[s] if isinstance(s, int) else s for s in _sources(body.jaxpr)]
