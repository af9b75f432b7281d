"""The mesh of arrays with Explicit axes, where nobody set one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding


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
