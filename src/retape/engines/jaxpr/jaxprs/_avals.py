"""The type of a value: shape, element type, and how it is spread over devices.

Inside `jax.shard_map` an array is *varying* over a mesh axis (each device has its own)
or the same on all devices along it, and JAX refuses to mix the two unless `lax.pcast`
says so. On a mesh with explicit axes, the sharding is part of the type. What a sweep
makes itself (empty snapshots, zero cotangents, a tape) must have the type of what it
stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from retape._errors import PlanError
from retape.engines.jaxpr.jaxprs._jax_internals import manual_axes, varying_axes

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Element types of real numbers, as names."""


class Kind(NamedTuple):
    """The type of a storage place: shape, element type, mesh axes, sharding."""

    shape: tuple[int, ...]
    dtype: Any
    axes: frozenset[str] = frozenset()
    """Mesh axes over which they vary."""
    sharding: NamedSharding | None = None
    """How they are laid out, where that is part of the type."""


def kind_of(aval: Any) -> Kind:
    """The kind of a type: of values that may share a place."""
    return Kind(tuple(aval.shape), aval.dtype, varying(aval), _sharding(aval))


def varying(aval: Any) -> frozenset[str]:
    """The mesh axes along which a value may differ from device to device."""
    return varying_axes(aval)


def _sharding(aval: Any) -> NamedSharding | None:
    return None if aval.sharding.mesh.empty else aval.sharding


def struct(aval: Any) -> jax.ShapeDtypeStruct:
    """A stand-in for a value of a type when a program is traced."""
    return jax.ShapeDtypeStruct(
        aval.shape,
        aval.dtype,
        sharding=_sharding(aval),
        **manual_axes(aval),
    )


def spread(value: Any, axes: frozenset[str]) -> Any:
    """The same value, typed as varying over these axes (at least)."""
    missing = tuple(sorted(axes - varying(jax.typeof(value))))
    return lax.pcast(value, missing, to="varying") if missing else value


def as_weak(values: Iterable[Any], avals: Iterable[Any]) -> list[Any]:
    """The values, weakly typed where these types are, as Python's numbers are.

    What is made inside, tapes and snapshots, has firm types; what is handed out has the
    types that JAX gives: a weak number does not widen what it is combined with.
    """
    pairs = zip(values, avals, strict=True)
    return [_weak(v) if getattr(a, "weak_type", False) else v for v, a in pairs]


def _weak(value: Any) -> Any:
    aval = jax.typeof(value)
    if aval.weak_type:
        return value
    # `lax.convert_element_type` makes firm types only.
    return lax.convert_element_type_p.bind(
        value, new_dtype=aval.dtype, weak_type=True, sharding=None
    )


def zeros_as(value: Any) -> Any:
    """Zeros of a value's own type."""
    return blank(jax.typeof(value))


def blank(aval: Any, rows: int | None = None) -> Any:
    """Zeros of a type, or `rows` of them stacked."""
    return zeros(kind_of(aval), rows)


def full(aval: Any, number: Any) -> Any:
    """An array of a type, all of it one number."""
    return zeros(kind_of(aval), number=number)


def zeros(kind: Kind, rows: int | None = None, number: Any = 0) -> Any:
    """Zeros of a kind (or another number), or `rows` of them stacked."""
    shape, dtype, axes, sharding = kind
    if rows is not None:
        shape = (rows, *shape)
        if sharding is not None:
            sharding = sharding.update(spec=PartitionSpec(None, *sharding.spec))
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        key = jax.random.key(0, impl=_key_impl(dtype))
        return spread(jnp.broadcast_to(key, shape), axes)
    with _mesh_of(sharding):
        return spread(lax.full(shape, number, dtype, sharding=sharding), axes)


def _mesh_of(sharding: NamedSharding | None) -> AbstractContextManager[Any]:
    """A mesh that is under way: without one JAX 0.12 leaves a sharding out."""
    if sharding is None:
        return nullcontext()
    mesh = sharding.mesh
    assert isinstance(mesh, jax.sharding.AbstractMesh)  # that of a type always is
    return jax.sharding.use_abstract_mesh(mesh)


def agreed(number: Any) -> Any:
    """A small number >= 0, typed as the same everywhere though it may vary.

    The place of a device in its program steers loops, which JAX lets differ from
    device to device (as the test of a `while` may), and picks rows of arrays, where
    the types would have to be mixed. Counting up to the number in a loop is the way
    to say in JAX's types that the user's own `while` differs, and no more.
    """
    if not varying(jax.typeof(number)):
        return number
    one = np.ones((), number.dtype)
    return lax.while_loop(lambda i: i < number, lambda i: i + one, one - one)


def _key_impl(dtype: Any) -> Any:
    """The kind of random key that a type stands for."""
    found: list[Any] = []
    # JAX tells the kind of a key, not that of a type; a traced key will do.
    jax.eval_shape(
        lambda key: found.append(jax.random.key_impl(key)),
        jax.ShapeDtypeStruct((), dtype),
    )
    return found[0]


def nbytes(aval: Any) -> int:
    """Bytes of a value of this type (extended types by their base array)."""
    dtype = aval.dtype
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        aval = jax.eval_shape(
            jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, dtype)
        )
        dtype = aval.dtype
    return int(np.prod(extents(aval.shape), dtype=np.int64)) * np.dtype(dtype).itemsize


SYMBOL = 256
"""What a symbolic dimension of `jax.export` counts for where sizes are compared."""


def extents(shape: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions of a shape as numbers, to compare sizes by."""
    return tuple(int(n) if isinstance(n, int | np.integer) else SYMBOL for n in shape)


def elements(shape: Sequence[Any]) -> float:
    """How many elements a shape has; no number is too small for symbolic ones."""
    known = extents(shape) == tuple(shape)
    return int(np.prod(shape, dtype=np.int64)) if known else float("inf")


def check_sizes_known(avals: Iterable[Any], what: str) -> None:
    """Refuse a number of bytes for arrays whose sizes are symbols.

    Raises:
        PlanError: Names a shape, and what to pass instead.
    """
    for aval in avals:
        if extents(aval.shape) != tuple(aval.shape):
            raise PlanError(
                f"{what} is a number of bytes, and the program has arrays of symbolic "
                f"shape, such as {tuple(aval.shape)}: what it takes is known when it "
                "is called. Export it for fixed shapes, or pass a plan or policy that "
                "is no number of bytes, such as `retape.fixed_space(snapshots=8)` or "
                "`policies.sqrt()`."
            )


def is_inexact(aval: Any) -> bool:
    """True of floating-point and complex values: they can have a derivative."""
    return jax.dtypes.issubdtype(aval.dtype, np.inexact)


def front(value: Any, axis: int | None, size: int) -> Any:
    """A value with the axis in front; what has none is the same for all lanes."""
    if axis is None:
        return jnp.broadcast_to(value, (size, *jnp.shape(value)))
    return jnp.moveaxis(value, axis, 0)


def in_front(values: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Values with their axis in front; at least one of them has it."""
    pairs = list(zip(values, dims, strict=True))
    size = next(v.shape[d] for v, d in pairs if d is not None)
    return [front(v, d, size) for v, d in pairs]
