"""What programs on eight devices share that run in processes of their own."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, PartitionSpec

Function = Callable[..., Any]
SPLIT, WHOLE = PartitionSpec("d"), PartitionSpec()
KINDS = AxisType.Auto, AxisType.Explicit

jax.config.update("jax_enable_x64", True)


def mesh_of(kind: AxisType = AxisType.Auto) -> Any:
    return jax.make_mesh((8,), ("d",), axis_types=(kind,))


def difference(got: Any, want: Any) -> float:
    """The greatest of all leaves, relative to the greatest entry of each."""
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        for a, b in map(jax.device_get, pairs)
    )
