"""A budget for each device, kept when it is known where the arguments are.

On automatic axes that is when a program is lowered. Where there are several devices a
sweep under a budget of bytes is traced by estimates, and its sizes are chosen again
then: the program that is lowered is another one, with the same inputs and outputs.

A marked function (`policies.within`) is cut when its derivative is taken, and by then
no more can be changed. There it is told, where it is lowered for several devices, that
the budget was kept by what one device would need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from retape._warn import warn
from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.calls._argument_shardings import device_count, placement
from retape.engines.jaxpr.jaxprs._avals import blank, struct, varying
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.jaxprs._provenance import Origin
from retape.engines.jaxpr.xla._standalone import is_explicit

Parts = tuple[list[Any], list[Any], list[Any]]


def may_be_spread(jaxpr: core.ClosedJaxpr) -> bool:
    """Whether the inputs may lie on several devices, without their types saying so."""
    if len(jax.devices()) == 1 or axis_names(jaxpr):
        return False
    avals = jaxpr.in_avals
    return not any(varying(a) or is_explicit(a) for a in avals)


one_device_p = core.Primitive("retape_one_device")
"""Hands on a value of a program whose budget was counted for one device."""


def for_one_device(value: Any, budget: int) -> Any:
    """A value; where it turns out to be on several devices, that is warned of."""
    return one_device_p.bind(value, budget=budget)


def _warn_of_devices(count: int, budget: int) -> None:
    if count > 1:
        warn(
            f"`policies.within({budget})`: the program runs on {count} devices along "
            "automatic axes, and a marked function is cut before it is known where "
            "its arguments are. The budget is kept by what one device would need for "
            "all of it, and what the devices hand to one another is in no count. Use "
            f"a mesh with explicit axes, or `retape.jax.grad(f, plan=retape.within("
            f"{budget}))`, whose budget is each device's."
        )


def _one_device_impl(value: Any, *, budget: int) -> Any:
    _warn_of_devices(len(value.devices()), budget)
    return value


def _one_device_jvp(primals: Any, tangents: Any, *, budget: int) -> tuple[Any, Any]:
    return one_device_p.bind(*primals, budget=budget), tangents[0]


def _lower_one_device(context: Any, value: Any, *, budget: int) -> Any:
    _warn_of_devices(device_count(context), budget)
    return [value]


one_device_p.def_impl(_one_device_impl)
one_device_p.def_abstract_eval(lambda value, **_: value)
ad.primitive_jvps[one_device_p] = _one_device_jvp
batching.primitive_batchers[one_device_p] = lambda values, dims, **how: (
    one_device_p.bind(*values, **how),
    dims[0],
)
mlir.register_lowering(one_device_p, _lower_one_device)


def placed(
    origin: Origin,
    jaxpr: core.ClosedJaxpr,
    context: Any,
    values: Sequence[Any],
    sweep_program: Callable[..., core.ClosedJaxpr],
) -> core.ClosedJaxpr:
    """The sweep with sizes for the place of its inputs.

    Args:
        origin: What is swept.
        jaxpr: The sweep as it was traced.
        context: Of the lowering.
        values: The inputs in the program that is being lowered.
        sweep_program: What makes a sweep.

    Raises:
        BudgetError: If nothing keeps to the budget on each device.
    """
    given = iter(placement(values))
    where = [next(given) if there else None for there in origin.ins]
    many = device_count(context) > 1
    point = tuple(parts_of(origin, where)[1]) if many else None
    if many and all(p is None for p in point or ()):
        warn(
            f"`{origin.plan}`: the program runs on {device_count(context)} devices, "
            "and it cannot be told where the arguments of the gradient are. The budget "
            "is kept by what one device would need for all of it. Take the gradient at "
            "the top of what is compiled, or use a mesh with explicit axes."
        )
        point = None
    program = sweep_program(origin.primal, origin.active, origin.plan, point)
    return made_again(origin, jaxpr, program)


def made_again(
    origin: Origin, jaxpr: core.ClosedJaxpr, program: core.ClosedJaxpr
) -> core.ClosedJaxpr:
    """Another sweep of the same program, with the inputs and outputs of `jaxpr`.

    Args:
        origin: What is swept.
        jaxpr: The sweep as it was traced; some of its outputs may have been dropped.
        program: The sweep that takes its place.
    """

    def run(*given: Any) -> list[Any]:
        _, *parts = parts_of(origin, filled(origin, given))
        outs = core.jaxpr_as_fun(program)(*(v for part in parts for v in part))
        return [v for v, wanted in zip(outs, origin.outs, strict=True) if wanted]

    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals))


def filled(origin: Origin, given: Sequence[Any]) -> list[Any]:
    """All inputs of a sweep; what was found to play no part may be anything."""
    rest, pairs = iter(given), zip(origin.ins, origin.avals, strict=True)
    return [next(rest) if there else blank(aval) for there, aval in pairs]


def parts_of(origin: Origin, values: Sequence[Any]) -> Parts:
    """Of all inputs of a sweep its constants, those of its program, and its seeds."""
    seeds = len(values) - sum(propagate(origin.primal, origin.active))
    first = seeds - len(origin.primal.in_avals)
    return list(values[:first]), list(values[first:seeds]), list(values[seeds:])
