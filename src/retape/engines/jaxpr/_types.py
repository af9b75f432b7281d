"""The type of a value: shape, element type, and how it is spread over devices.

Inside `jax.shard_map` an array is *varying* over a mesh axis (each device has its own)
or the same on all devices along it, and JAX refuses to mix the two unless `lax.pcast`
says so. On a mesh with explicit axes, the sharding is part of the type. What a sweep
makes itself (empty snapshots, zero cotangents, a tape) must have the type of what it
stands for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec


class Kind(NamedTuple):
    """What two values that share a place have in common."""

    shape: tuple[int, ...]
    dtype: Any
    axes: frozenset[str] = frozenset()
    """Mesh axes over which they vary."""
    sharding: NamedSharding | None = None
    """How they are laid out, where that is part of the type."""


def kind_of(aval: Any) -> Kind:
    """What tells types apart."""
    return Kind(tuple(aval.shape), aval.dtype, varying(aval), _sharding(aval))


def varying(aval: Any) -> frozenset[str]:
    """The mesh axes along which a value may differ from device to device."""
    return aval.manual_axis_type.varying


def _sharding(aval: Any) -> NamedSharding | None:
    return None if aval.sharding.mesh.empty else aval.sharding


def struct(aval: Any) -> jax.ShapeDtypeStruct:
    """What stands for a value of a type when a program is traced."""
    return jax.ShapeDtypeStruct(
        aval.shape,
        aval.dtype,
        sharding=_sharding(aval),
        manual_axis_type=aval.manual_axis_type,
    )


def spread(value: Any, axes: frozenset[str]) -> Any:
    """The same value, typed as varying over these axes (at least)."""
    missing = tuple(sorted(axes - varying(jax.typeof(value))))
    return lax.pcast(value, missing, to="varying") if missing else value


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
    return spread(lax.full(shape, number, dtype, sharding=sharding), axes)


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
