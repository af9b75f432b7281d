"""Where a call's arguments are, and a budget for each device that is kept there.

On automatic axes JAX traces a function without knowing where its arguments are: the
same trace serves any shardings. They are known when the program is lowered, and stand
at the arguments of its main function:

    func @main(%arg0 {sdy.sharding = #sdy.sharding<mesh<["d"=8]>, [{"d"}, {}]>})

A value that is computed from arguments is taken to be where one of the same shape is.

Where there are several devices a sweep under a budget of bytes is traced by estimates,
and its sizes are chosen again when it is lowered: the program that is lowered is
another one, with the same inputs and outputs. A marked function (`policies.within`) is
cut when its derivative is taken, and by then no more can be changed. There it is told,
where it is lowered for several devices, that the budget was kept by what one device
would need.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from retape._warn import warn
from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.jaxprs._avals import blank, struct, varying
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.jaxprs._provenance import Origin
from retape.engines.jaxpr.xla._standalone import Shardings, is_explicit

_MESH = re.compile(r"mesh<\[(.*?)\](?:, device_ids=\[.*?\])?>, \[(.*)\]")
_AXIS = re.compile(r'"([^"]+)"=(\d+)')
_DIMENSION = re.compile(r"\{([^}]*)\}")
_FAR = 32
"""Operations between a call and an argument that are looked through."""


def device_count(context: Any) -> int:
    """How many devices the program that is being lowered runs on."""
    return getattr(context.module_context.axis_context, "num_devices", None) or 1


def placement(values: Sequence[Any]) -> Shardings:
    """Where values of a program are; `None` for those of which it is not known."""
    return tuple(_sharding_of(value, _FAR) for value in values)


def _sharding_of(value: Any, far: int) -> NamedSharding | None:
    owner = getattr(value, "owner", None)
    if hasattr(owner, "arguments"):  # an argument of a block
        return _of_argument(value, owner)
    if owner is None or far == 0:
        return None
    for operand in getattr(owner, "operands", ()):
        if operand.type == value.type or _shape(operand) == _shape(value):
            found = _sharding_of(operand, far - 1)
            if found is not None:
                return found
    return None


def _shape(value: Any) -> Any:
    return tuple(getattr(value.type, "shape", ()))


def _of_argument(value: Any, block: Any) -> NamedSharding | None:
    attributes = getattr(block.owner, "attributes", {})
    if "arg_attrs" not in attributes:
        return None
    own = attributes["arg_attrs"][value.arg_number]
    return parsed(str(own["sdy.sharding"])) if "sdy.sharding" in own else None


def parsed(text: str) -> NamedSharding | None:
    """A sharding from its text; `None` if it is of another form.

    Any devices of the right number will do, since no array is placed.
    """
    found = _MESH.search(text)
    if found is None:
        return None
    axes = [(name, int(size)) for name, size in _AXIS.findall(found[1])]
    sizes = tuple(size for _, size in axes)
    if not axes or math.prod(sizes) > len(jax.devices()) or ":(" in found[2]:
        return None
    mesh = jax.make_mesh(
        sizes,
        tuple(name for name, _ in axes),
        axis_types=(AxisType.Auto,) * len(axes),
        devices=jax.devices()[: math.prod(sizes)],
    )
    spec = [tuple(re.findall(r'"([^"]+)"', d)) for d in _DIMENSION.findall(found[2])]
    return NamedSharding(mesh, PartitionSpec(*(d or None for d in spec)))


def mesh_of_arrays(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """A context in which what is made beside some arrays is of their mesh.

    JAX refuses to mix an array with Explicit axes and one of no mesh in most operations
    on rows. Where a mesh is set already, or no array has such axes, nothing changes.
    """
    if not jax.sharding.get_abstract_mesh().empty:
        return nullcontext()
    for value in values:
        sharding = getattr(value, "sharding", None)
        if not isinstance(sharding, NamedSharding):
            continue
        mesh = sharding.mesh
        if isinstance(mesh, Mesh) and AxisType.Explicit in mesh.axis_types:
            return jax.set_mesh(mesh)
    return nullcontext()


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
