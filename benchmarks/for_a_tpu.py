"""A TPU that is not there: the compiler in `libtpu` compiles for it on any machine."""

from __future__ import annotations

import os
from importlib.util import find_spec

# Read when `libtpu` is loaded: no machine of a cloud is asked for its description.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding


def place_on(topology: str) -> SingleDeviceSharding | None:
    """One device of a topology, as "v5e:2x2x1"; `None` and a word without `libtpu`."""
    if find_spec("libtpu") is None:
        print("nothing was run: it needs the package `libtpu`")
        return None
    found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    return SingleDeviceSharding(found.devices[0])


def lowered(traced: jax.stages.Traced) -> jax.stages.Lowered:
    """A traced program, lowered for a TPU."""
    return traced.lower(lowering_platforms=("tpu",))
