"""Primitives of JAX's new kind, in the form that the passes know.

JAX rebuilds `jax.checkpoint`, `checkpoint_name`, `jax.custom_jvp` and `jax.custom_vjp`
on "hijax" primitives, behind the flags `jax_remat3`, `jax_custom_jvp3` and
`jax_custom_vjp3`. All of them are one primitive, whose parameter holds an object with
the rules, and in it, out of sight of every pass, the program:

    b = call_hi_primitive[_prim=RematTraced{jaxpr=..., policy=None}] a

Such an equation is written as the one that it takes the place of, with the same rules:

    b = checkpoint[jaxpr=..., policy=None, prevent_cse=True] a

From 0.12 on some functions of JAX's own are such primitives, flags or not: `einsum`,
`ldexp`, `custom_root`. They are written as their products, and as a `custom_jvp` with
their own rule. A primitive of a user's own stays one operation, with its own rules. XLA
knows none of them, so on the way to the compiler each becomes what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero
from jax.extend import core
from jax.interpreters import ad

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.jaxprs._jax_internals import (
    HIJAX,
    CheckpointName,
    Collected,
    CustomJVPTraced,
    CustomVJPTraced,
    RematTraced,
    classic_rules,
    is_high,
    jaxprs_in_params,
    source_line,
)
from retape.engines.jaxpr.jaxprs._rewrite import contains, inside, rewrite


def as_classic(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program, JAX's own primitives of the new kind in their old form.

    Raises:
        UnsupportedError: If a value is of a type that is not an array's.
    """
    if not contains(jaxpr, _is_hijax):
        return jaxpr
    contains(jaxpr, _refuse_types)
    with classic_rules():
        return rewrite(jaxpr, lambda eqn: _form(eqn) is not None, _classic)


def expanded(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program, each primitive of the new kind as what it is made of."""
    with classic_rules():
        while contains(jaxpr, _is_hijax):
            jaxpr = rewrite(jaxpr, _is_hijax, _expanded_eqn)
        return _said_plain(jaxpr)


def _said_plain(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program without such primitives, and none of its parts said to have any.

    JAX notes that of a program when it is made (`Jaxpr.is_high`), and the note stays
    when dead code is dropped. It would ask for the program to be expanded for ever.
    """
    if not contains(jaxpr, _is_said_high):
        return jaxpr
    return rewrite(jaxpr, _is_said_high, _bound_plain)


def _is_said_high(eqn: core.JaxprEqn) -> bool:
    return any(map(is_high, jaxprs_in_params(eqn.params)))


def _bound_plain(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    params = {k: inside(v, _made_again) for k, v in eqn.params.items()}
    return bind(eqn.replace(params=params), list(values))


def _made_again(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    run = core.jaxpr_as_fun(_said_plain(jaxpr))
    return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals))


def _is_hijax(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == HIJAX


def _refuse_types(eqn: core.JaxprEqn) -> bool:
    high = [v.aval for v in eqn.outvars if getattr(v.aval, "is_high", False)]
    if high:
        raise UnsupportedError(
            f"A value made at {source_line(eqn)} is of the type `{high[0]}`, which is "
            "no array (a `HiType`). A snapshot holds arrays. Lower it to arrays, or "
            "use `jax.grad` for this function."
        )
    return False


def _expanded_eqn(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    return _Rules(eqn.params["_prim"]).run(*values)


def _form(eqn: core.JaxprEqn) -> Callable[..., list[Any]] | None:
    """What makes the old form of an equation; `None` if it has none."""
    if not _is_hijax(eqn):
        return None
    kind = type(eqn.params["_prim"])
    if kind in _FORMS:
        return _FORMS[kind]
    if kind.__module__ == "jax._src.numpy.hijax":
        return _as_made  # `einsum` is its products, and policies are to see them
    return _with_jvp if kind.__module__.startswith("jax._src.") else None


def _classic(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    form = _form(eqn)
    assert form is not None
    return form(_Rules(eqn.params["_prim"]), *values)


@dataclass(frozen=True, slots=True)
class _Rules:
    """An object of the new kind, on lists of values instead of trees."""

    prim: Any

    def ins(self, values: Sequence[Any]) -> Any:
        return jax.tree.unflatten(self.prim.in_tree, values)

    def outs(self, tree: Any) -> list[Any]:
        return self.prim.out_tree.flatten_up_to(tree)

    def run(self, *values: Any) -> list[Any]:
        return self.outs(self.prim.expand(*self.ins(values)))

    def body(self) -> Callable[..., list[Any]]:
        """The function itself, with nothing of the new kind in it."""
        structs = map(struct, self.prim.in_avals_flat)
        return core.jaxpr_as_fun(as_classic(jax.make_jaxpr(self.run)(*structs)))


def _as_made(rules: _Rules, *values: Any) -> list[Any]:
    return rules.run(*values)


def _rematted(rules: _Rules, *values: Any) -> list[Any]:
    prim = rules.prim
    again = jax.checkpoint(
        core.jaxpr_as_fun(as_classic(prim.jaxpr)),
        policy=prim.policy,
        prevent_cse=getattr(prim, "prevent_cse", True),
    )
    return again(*values)


def _named(rules: _Rules, *values: Any) -> list[Any]:
    return [checkpoint_name(values[0], rules.prim.name)]


def _with_jvp(rules: _Rules, *values: Any) -> list[Any]:
    def rule(point: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        moving = rules.ins(list(map(_inner_zero, tangents)))
        with classic_rules():
            outs, moved = rules.prim.jvp(rules.ins(point), moving)
        return rules.outs(outs), list(map(ad.instantiate_zeros, rules.outs(moved)))

    fun = jax.custom_jvp(rules.body())
    fun.defjvp(rule, symbolic_zeros=getattr(rules.prim, "symbolic_zeros", True))
    return fun(*values)


def _with_vjp(rules: _Rules, *values: Any) -> list[Any]:
    prim = rules.prim

    # Symbolic zeros in any case: the rule of a function that closes over values is to
    # be told which of them move, and refuses that.
    def forward(*given: Any) -> tuple[list[Any], Any]:
        moving = rules.ins([v.perturbed for v in given])
        with classic_rules():
            outs, held, *_ = prim.vjp_fwd(moving, *rules.ins([v.value for v in given]))
        return rules.outs(outs), held

    def backward(held: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        found = [Collected(a.to_ct_aval()) for a in prim.in_avals_flat]
        outs = jax.tree.unflatten(prim.out_tree, list(map(_inner_zero, cotangents)))
        with classic_rules():
            prim.vjp_bwd(held, outs, *rules.ins(found))
        frozen = [each.freeze() for each in found]
        return tuple(None if isinstance(v, ad.Zero) else v for v in frozen)

    fun = jax.custom_vjp(rules.body())
    fun.defvjp(forward, backward, symbolic_zeros=True)
    return fun(*values)


def _inner_zero(value: Any) -> Any:
    """A zero as rules of the new kind are given it."""
    return ad.Zero(value.aval) if isinstance(value, SymbolicZero) else value


_FORMS: dict[type, Callable[..., list[Any]]] = {
    RematTraced: _rematted,
    CheckpointName: _named,
    CustomJVPTraced: _with_jvp,
    CustomVJPTraced: _with_vjp,
}
