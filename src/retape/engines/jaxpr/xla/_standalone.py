"""Compile a part of a larger program alone, as it would be compiled in its place.

What a part takes depends on where it stands. Its types say some of that (shardings on
explicit axes, axes that a value varies over), its context the rest (the mesh, the axes
that `shard_map` and `vmap` have bound). Here all of it is put around the part again:

    mesh with explicit axes      arguments with those shardings, on a concrete mesh
    inside `shard_map`           a `shard_map`, a leading axis for each device's own
    inside a named `vmap`        a `vmap` over all arguments

No value is made, so any devices of the right number will do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from retape._bytes import format_bytes
from retape.engines.jaxpr.xla._ahead_of_time import mesh_of, on_mesh
from retape.engines.jaxpr.xla._memory_report import MemoryReport, memory_report

_log = logging.getLogger("retape.jax")

Shardings = tuple[jax.sharding.Sharding | None, ...]
"""Where each argument is; `None` where that is not known."""


def memory_of(
    fun: Callable[..., Any],
    structs: Sequence[jax.ShapeDtypeStruct],
    names: frozenset[Any] = frozenset(),
    places: Shardings | None = None,
    donated: Sequence[int] = (),
) -> MemoryReport | None:
    """The compiler's account of what a function takes on each device.

    Args:
        fun: A function of arrays.
        structs: Their types, as they are where the function stands.
        names: Axes that collectives in it speak of.
        places: Where the arrays are, as far as the types do not say it.
        donated: Which of them give their place to results.

    Returns:
        `None` if the compiler does not say, or there are too few devices.
    """
    began = monotonic()
    report = _compiled_memory(fun, structs, names, places, donated)
    taken = "unknown" if report is None else format_bytes(report.temp)
    # A search compiles inside a call of the user's, which has no argument for it.
    _log.info("search: compiled in %.1f s, takes %s", monotonic() - began, taken)
    return report


def _compiled_memory(
    fun: Callable[..., Any],
    structs: Sequence[jax.ShapeDtypeStruct],
    names: frozenset[Any],
    places: Shardings | None,
    donated: Sequence[int],
) -> MemoryReport | None:
    mesh = _mesh_around(structs)
    for name in sorted(names - set(mesh.axis_names), key=str):
        fun, structs = _under_vmap(fun, structs, name)
    if mesh.empty:
        known = places or (None,) * len(structs)
        pairs = zip(structs, known, strict=True)
        placed = [s if p is None else s.update(sharding=p) for s, p in pairs]
        return memory_report(fun, *placed, donated=donated)
    devices = mesh_of(mesh)
    if devices is None:
        return None
    if mesh.manual_axes:
        fun, structs = _under_shard_map(fun, structs, devices, set(mesh.manual_axes))
    structs = [_placed(s, devices) for s in structs]
    if places is not None and not mesh.manual_axes:
        pairs = zip(structs, places, strict=True)
        structs = [s if p is None else s.update(sharding=p) for s, p in pairs]
    with jax.sharding.use_abstract_mesh(devices.abstract_mesh):
        return memory_report(fun, *structs, donated=donated)


def _mesh_around(structs: Sequence[Any]) -> Any:
    """The mesh of the context, or else the one that types speak of."""
    found = jax.sharding.get_abstract_mesh()
    own = (getattr(s.sharding, "mesh", None) for s in structs)
    abstract = (m for m in own if m is not None and not isinstance(m, Mesh))
    return found if not found.empty else next((m for m in abstract if m), found)


def places_of(leaves: Sequence[Any]) -> Shardings:
    """Where arguments are, or where their types say that they will be.

    `None` for one that is on a single device.

    Raises:
        UnsupportedError: If a type names a mesh of more devices than there are.
    """
    return tuple(map(_place_of, leaves))


def _place_of(leaf: Any) -> jax.sharding.Sharding | None:
    where = getattr(leaf, "sharding", None)
    if where is None or where.num_devices < 2:
        return None
    return on_mesh(where) if isinstance(where, NamedSharding) else where


def is_explicit(aval: Any) -> bool:
    """Whether a type says how an array is laid out."""
    return AxisType.Explicit in aval.sharding.mesh.axis_types


def devices_sharing(structs: Sequence[Any], places: Shardings | None) -> float:
    """How many times less of the arguments is on each device than on all together."""
    whole = own = 0
    for i, s in enumerate(structs):
        where = (places[i] if places else None) or getattr(s, "sharding", None)
        size = s.size
        whole += size
        try:
            shape = s.shape if where is None else where.shard_shape(tuple(s.shape))
        except (ValueError, TypeError, NotImplementedError):
            shape = s.shape
        part = 1
        for extent in shape:
            part *= extent
        own += part
    return whole / own if own else 1.0


def _placed(aval: jax.ShapeDtypeStruct, mesh: Mesh) -> jax.ShapeDtypeStruct:
    """The same on real devices; a type with automatic axes says nothing of where it is.

    A user's `jax.ShapeDtypeStruct` may name them all the same.
    """
    where = aval.sharding
    if isinstance(where, NamedSharding) and not isinstance(where.mesh, Mesh):
        is_told = AxisType.Explicit in mesh.axis_types or any(where.spec)
        there = is_told and not where.mesh.empty
        where = NamedSharding(mesh, PartitionSpec(*where.spec)) if there else None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=where)


def _under_vmap(
    fun: Callable[..., Any], structs: Sequence[Any], name: Any
) -> tuple[Callable[..., Any], list[Any]]:
    size = jax.lax.axis_size(name)
    wide = [s.update(shape=(size, *s.shape)) for s in structs]
    return jax.vmap(fun, axis_name=name, axis_size=size), wide


def _under_shard_map(
    fun: Callable[..., Any], structs: Sequence[Any], mesh: Mesh, manual: set[str]
) -> tuple[Callable[..., Any], list[Any]]:
    """Each device's own value is a row of an array that is spread over its axes."""
    axes = [tuple(sorted(s.manual_axis_type.varying & manual)) for s in structs]

    def device(*rows: Any) -> Any:
        pairs = zip(rows, axes, strict=True)
        return jax.tree.map(row, fun(*(v[0] if a else v for v, a in pairs)))

    def row(value: Any) -> Any:
        return jax.lax.pcast(value, tuple(missing(value)), to="varying")[None]

    def missing(value: Any) -> list[str]:
        return sorted(manual - jax.typeof(value).manual_axis_type.varying)

    def size(names: tuple[str, ...]) -> int:
        total = 1
        for name in names:
            total *= mesh.shape[name]
        return total

    wide = [
        jax.ShapeDtypeStruct((size(a), *s.shape) if a else s.shape, s.dtype)
        for s, a in zip(structs, axes, strict=True)
    ]
    specs = tuple(PartitionSpec(a) if a else PartitionSpec() for a in axes)
    run = jax.shard_map(
        device,
        mesh=mesh,
        in_specs=specs,
        out_specs=PartitionSpec(tuple(sorted(manual))),
        axis_names=manual,
    )
    return run, wide
