"""Compiling ahead of a call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    SingleDeviceSharding,
)

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._target import Target, target


def aot_compile(
    fun: Callable[..., Any], *args: Any, donated: Sequence[int] = ()
) -> jax.stages.Compiled:
    """A function compiled for such arguments, also where the user turned `jit` off.

    Args:
        fun: The function.
        *args: Its arguments, or types of them.
        donated: Positions of those whose place the results may take.
    """
    with jax.disable_jit(False):
        return compiled(aot_lower(fun, *args, donated=donated))


def aot_lower(
    fun: Callable[..., Any], *args: Any, donated: Sequence[int] = ()
) -> jax.stages.Lowered:
    """A function as the compiler is given it, also where the user turned `jit` off.

    Where a device is described it is lowered for that, with its arguments there.
    """
    described = target()
    with jax.disable_jit(False), warnings.catch_warnings():
        # The user is told so when the program itself is compiled.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        jitted = jax.jit(fun, donate_argnums=tuple(donated))
        if described is None:
            return jitted.lower(*args)
        alone = not any(map(_is_spread, jax.tree.leaves(args)))
        there = jax.tree.map(lambda leaf: _on(described, leaf, alone=alone), args)
        traced: Any = jitted.trace(*there)
        return traced.lower(lowering_platforms=(described.platform,))


def _is_spread(leaf: Any) -> bool:
    """Tell whether an argument is on several devices."""
    given = getattr(leaf, "sharding", None)
    return given is not None and given.num_devices > 1


def _on(described: Target, leaf: Any, *, alone: bool) -> jax.ShapeDtypeStruct:
    """The type of an argument on described devices, spread as on those that it names.

    Args:
        described: The device.
        leaf: The argument.
        alone: Whether all of them are on one device.
    """
    aval, where = jax.typeof(leaf), None
    if alone:
        where = SingleDeviceSharding(described.devices(1)[0])
    elif _is_spread(leaf):
        if not isinstance(leaf.sharding, NamedSharding):
            raise UnsupportedError(
                f"an argument of type {aval} is spread over devices by a "
                f"{type(leaf.sharding).__name__}, which names no mesh. Place it by a "
                "`jax.sharding.NamedSharding`."
            )
        where = on_mesh(leaf.sharding)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=where)


def on_mesh(where: NamedSharding) -> NamedSharding:
    """The same on the devices for which programs are compiled.

    Raises:
        UnsupportedError: If there are too few.
    """
    mesh, described = where.mesh, target()
    there = jax.devices() if described is None else described.devices(mesh.size)
    if isinstance(mesh, Mesh) and mesh.devices.flat[0] in there:
        return where
    others = mesh_of(mesh)
    if others is None:
        what = "here" if described is None else f"described ({described.title})"
        raise UnsupportedError(
            f"an argument is spread over {mesh.size} devices, and {len(there)} are "
            f"{what}. Pass types that name a mesh of no more."
        )
    return NamedSharding(others, where.spec)


def mesh_of(mesh: Any) -> Mesh | None:
    """A mesh of such a shape, of the devices for which programs are compiled.

    Args:
        mesh: A mesh, also an abstract one; axes that `shard_map` has bound are free.

    Returns:
        `None` if there are too few.
    """
    described = target()
    devices = jax.devices() if described is None else described.devices(mesh.size)
    if mesh.size > len(devices):
        return None
    kinds = [AxisType.Auto if k == AxisType.Manual else k for k in mesh.axis_types]
    return jax.make_mesh(
        mesh.axis_sizes,
        mesh.axis_names,
        axis_types=tuple(kinds),
        devices=devices[: mesh.size],
    )


def compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """What was lowered, compiled for this machine's device or the described one."""
    described = target()
    if described is None:
        return lowered.compile()
    return lowered.compile(compiler_options=described.options)


def call_compiled(compiled: Callable[..., Any], *args: Any) -> Any:
    """The results of what was compiled, also where the user turned `jit` off.

    JAX stops at a NaN in them with an error of its insides, which it catches in `jit`
    alone; see `checked_results`.
    """
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        return compiled(*args)


def looks_for_nans() -> bool:
    """Tell whether JAX is to stop at a NaN, or at what is infinite."""
    config: Any = jax.config
    return config.jax_debug_nans or config.jax_debug_infs


def checked_results(values: Any) -> Any:
    """What was compiled ahead gave these; JAX stops at a NaN in them, if it is to."""
    if looks_for_nans():
        jax.tree.map(jnp.copy, values)
    return values
