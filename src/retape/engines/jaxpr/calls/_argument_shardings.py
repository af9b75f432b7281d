"""Shardings of a call's arguments, read from the program it is lowered into.

On automatic axes JAX traces a function without knowing where its arguments are: the
same trace serves any shardings. They are known when the program is lowered, and stand
at the arguments of its main function:

    func @main(%arg0 {sdy.sharding = #sdy.sharding<mesh<["d"=8]>, [{"d"}, {}]>})

A value that is computed from arguments is taken to be where one of the same shape is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from retape.engines.jaxpr.xla._standalone import Shardings

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
