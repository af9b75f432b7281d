"""`vmap` of a program, told which of its outputs are the same for all lanes.

JAX asks a batching rule which outputs have a batch axis, and a caller may insist that
one has none (`out_axes=None`): the mean of a batch that `lax.pmean` made. The axis may
have a name, which collectives inside the program speak of; JAX tells it only to rules
for calls (`fancy_primitive_batchers`), which they are told even if nothing is mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.interpreters import batching
from jax.sharding import NamedSharding, PartitionSpec

from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names, is_mapped

Dims = tuple[int | None, ...]


class Axis(NamedTuple):
    """An axis that is mapped over."""

    size: int
    name: Any = None
    spmd_name: Any = None
    spread: Any = None
    """The Explicit axes of a mesh that it is spread over."""

    def over(self, run: Callable[..., Any], dims: Sequence[Any]) -> Callable[..., Any]:
        """The function of all lanes at once; every output has the axis in front."""
        return jax.vmap(
            run,
            in_axes=tuple(dims),
            axis_size=self.size,
            axis_name=self.name,
            spmd_axis_name=self.spmd_name,
        )


def register_batching(primitive: core.Primitive, rule: Callable[..., Any]) -> None:
    """Give a call its batching rule, `(axis, values, dims, **params)`.

    It is not asked where nothing is mapped and the program does not name the axis.
    """

    def batch(
        data: Any, values: Sequence[Any], dims: Sequence[Any], **params: Any
    ) -> tuple[Sequence[Any], Sequence[int | None]]:
        jaxpr = params["jaxpr"]
        if all(d is None for d in dims) and data.name not in axis_names(jaxpr):
            return primitive.bind(*values, **params), [None] * len(jaxpr.out_avals)
        # An axis without a name has an object in its place.
        name = data.name if data.name in axis_names(jaxpr) else None
        spread = getattr(data, "explicit_mesh_axis", None)
        axis = Axis(data.size, name, data.spmd_name, spread)
        at = tuple(None if d is None else int(d) for d in dims)
        return rule(axis, values, at, **params)

    batching.fancy_primitive_batchers[primitive] = batch


def vmapped(
    run: Callable[..., Sequence[Any]], axis: Axis, dims: Sequence[Any]
) -> tuple[Callable[..., list[Any]], list[int | None]]:
    """The function of all lanes at once; outputs that are alike have no axis.

    Returns:
        The function, and the axes of its outputs, known once it has been called.
    """
    found: list[int | None] = []

    def whole(*values: Any) -> list[Any]:
        alike: dict[int, Any] = {}

        def lane(*values: Any) -> list[Any]:
            outs = list(run(*values))
            # What is not mapped belongs to the trace outside, and may go there.
            alike.update((i, v) for i, v in enumerate(outs) if not is_mapped(v))
            found[:] = [None if i in alike else 0 for i in range(len(outs))]
            return [v for i, v in enumerate(outs) if i not in alike]

        mapped = iter(axis.over(lane, dims)(*values))
        return [alike[i] if i in alike else next(mapped) for i in range(len(found))]

    return whole, found


def batched_structs(
    avals: Sequence[Any], dims: Sequence[int | None], axis: Axis
) -> list[jax.ShapeDtypeStruct]:
    """The types of a program's inputs with the batch axes put in."""
    pairs = zip(avals, dims, strict=True)
    return [struct(v if a is None else _with_axis(v, a, axis)) for v, a in pairs]


def _with_axis(aval: Any, at: int, axis: Axis) -> Any:
    """A type with one axis more, which is spread over a mesh as the batch is."""
    spec, mesh = aval.sharding.spec, aval.sharding.mesh
    # What was a number of Python's is of no mesh, and a batch of them is of one.
    mesh = jax.sharding.get_abstract_mesh() if mesh.empty and axis.spread else mesh
    spec = PartitionSpec(*spec[:at], axis.spread, *spec[at:])
    shape = (*aval.shape[:at], axis.size, *aval.shape[at:])
    return aval.update(shape=shape, sharding=NamedSharding(mesh, spec))
