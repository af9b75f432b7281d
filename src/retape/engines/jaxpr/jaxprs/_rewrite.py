"""Rewriting a program: some of its equations, however deep, replaced by others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.export import is_symbolic_dim
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, source_line

Chooses = Callable[[core.JaxprEqn], bool]
Replaces = Callable[[core.JaxprEqn, Sequence[Any]], Sequence[Any]]


def contains(code: Any, chosen: Chooses) -> bool:
    """True if an equation that is chosen stands in a jaxpr, or in one inside it."""
    return any(map(chosen, every_eqn(code.eqns)))


def every_eqn(eqns: Iterable[core.JaxprEqn]) -> Iterator[core.JaxprEqn]:
    """Equations, each before those of the programs inside it, however deep."""
    for eqn in eqns:
        yield eqn
        for body in programs_of(eqn):
            yield from every_eqn(body.eqns)


def programs_of(eqn: core.JaxprEqn) -> list[core.Jaxpr]:
    """The programs inside an equation."""
    return [getattr(j, "jaxpr", j) for j in jaxprs_in_params(eqn.params)]


def known_length(eqn: core.JaxprEqn) -> int:
    """The number of steps of a `scan`.

    Raises:
        UnsupportedError: If it is a symbol of `jax.export`; with the loop's line.
    """
    length = eqn.params["length"]
    if is_symbolic_dim(length):
        raise UnsupportedError(
            f"The `scan` at {source_line(eqn)} has {length} steps, a symbol of "
            "`jax.export`: how it is divided depends on their number. Export it for a "
            "fixed length, or write it as `retape.jax.fori_loop`, which may end at a "
            "number that is known when it is called."
        )
    return length


def rewrite(
    jaxpr: core.ClosedJaxpr, chosen: Chooses, replace: Replaces
) -> core.ClosedJaxpr:
    """The program with every chosen equation replaced by what `replace` computes.

    Args:
        jaxpr: The program; its constants stay constants.
        chosen: Tells which equations to replace. One inside another is not seen.
        replace: From the equation and the values of its inputs to those of its outputs.
    """
    # The branches of a `cond` are given one another's effects, so one with effects is
    # made again even if nothing in it is replaced.
    if not contains(jaxpr, chosen) and not jaxpr.effects:
        return jaxpr

    def change(deeper: core.ClosedJaxpr) -> core.ClosedJaxpr:
        return rewrite(deeper, chosen, replace)

    def rule(eqn: core.JaxprEqn, ins: list[Any]) -> Sequence[Any]:
        if chosen(eqn):
            return replace(eqn, ins)
        if eqn.primitive.name == "shard_map":
            body = core.ClosedJaxpr(eqn.params["jaxpr"], ())
            # Where a device's part is traced JAX must know that it is one.
            return map_again(
                eqn, lambda *parts: core.jaxpr_as_fun(change(body))(*parts), ins
            )
        return bind(with_inside(eqn, change), ins)

    def run(*values: Any) -> list[Any]:
        return evaluate(jaxpr, values, rule)

    return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals))


def map_again(
    eqn: core.JaxprEqn, device: Callable[..., Any], values: Sequence[Any]
) -> list[Any]:
    """Evaluate a `shard_map` with another program for each device."""
    p = eqn.params
    mapped = jax.shard_map(
        device,
        mesh=p["mesh"],
        in_specs=tuple(p["in_specs"]),
        out_specs=list(p["out_specs"]),
        axis_names=set(p["newly_manual_axes"]),
        check_vma=p["check_vma"],
    )
    return list(mapped(*values))


def with_inside(
    eqn: core.JaxprEqn, change: Callable[[core.ClosedJaxpr], core.ClosedJaxpr]
) -> core.JaxprEqn:
    """An equation with the programs in it changed, or as it was."""
    params = {k: inside(v, change) for k, v in eqn.params.items()}
    same = all(params[k] is v for k, v in eqn.params.items())
    return eqn if same else eqn.replace(params=params)


def inside(param: Any, change: Callable[[core.ClosedJaxpr], core.ClosedJaxpr]) -> Any:
    """A parameter of an equation with the programs in it changed, or as it was."""
    if isinstance(param, core.ClosedJaxpr):
        return change(param)
    if isinstance(param, core.Jaxpr):
        # What has open constants is data of the package whose equation this is, which
        # has their values elsewhere: an operator of Lineax, say.
        if param.constvars:
            return param
        return change(core.ClosedJaxpr(param, ())).jaxpr
    # Of a named tuple, such as a kind of random keys, only the type would be lost.
    if type(param) is tuple:
        parts = tuple(inside(p, change) for p in param)
        same = all(a is b for a, b in zip(parts, param, strict=True))
        return param if same else parts
    return param
