"""Devices that need not be here: XLA compiles for a description of one.

The compiler of a platform is a plugin of JAX's. Installed beside JAX, NVIDIA's is
started with each process, and without a driver it prints a traceback each time (JAX
0.10.2); a TPU's looks for its host. So they have a folder of their own, which is only
looked into when it is asked for. Nothing is tuned without the device: a product may get
another kernel there, and another workspace; loops and buffers are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import requires
from pathlib import Path
from typing import Any, NamedTuple

import jax

from retape._arguments import word_of
from retape._errors import MissingPackageError
from retape._user_cache import user_cache
from retape.engines.jaxpr.jaxprs._jax_internals import pjrt_topology
from retape.engines.jaxpr.jaxprs._target import Target, compiling_for


class Chip(NamedTuple):
    """What the compiler has to know of a GPU, from its maker's data sheet.

    Attributes:
        title: Its name.
        capability: CUDA's compute capability.
        cores: Streaming multiprocessors.
        memory: Bytes.
        bandwidth: Bytes a second.
        l2: Bytes of its second cache.
        clock: GHz.
        shared: Bytes of memory that a multiprocessor shares.
        threads: Most threads of a multiprocessor.
        lanes: Units for 32-bit numbers in a multiprocessor.
    """

    title: str
    capability: tuple[int, int]
    cores: int
    memory: int
    bandwidth: int
    l2: int
    clock: float
    shared: int
    threads: int
    lanes: int


CHIPS = {
    "h100": Chip(
        "NVIDIA H100 80GB HBM3",
        (9, 0), 132, 84_929_347_584, 3_352_320_000_000, 52_428_800, 1.98,
        233_472, 2048, 128,
    ),
    "h200": Chip(
        "NVIDIA H200",
        (9, 0), 132, 150_109_880_320, 4_800_000_000_000, 52_428_800, 1.98,
        233_472, 2048, 128,
    ),
    "a100": Chip(
        "NVIDIA A100-SXM4-80GB",
        (8, 0), 108, 84_987_740_160, 2_039_000_000_000, 41_943_040, 1.41,
        167_936, 2048, 64,
    ),
    "l4": Chip(
        "NVIDIA L4",
        (8, 9), 58, 23_642_767_360, 300_096_000_000, 50_331_648, 2.04,
        102_400, 1536, 128,
    ),
}  # fmt: skip

_PLUGIN = "jax_plugins/xla_cuda13/xla_cuda_plugin.so"
_LIBDEVICE = "nvidia/cu13"


class Tpu(NamedTuple):
    """What the compiler has to know of a TPU.

    Attributes:
        title: Its name.
        topology: Chips of a host, for one of which programs are compiled.
        host: The type of that host, which a TPU's library would ask Google's cloud for.
        room: Bytes that its compiler gives a program; it refuses one that takes more.
    """

    title: str
    topology: str
    host: str
    room: int


TPUS = {"v5e": Tpu("TPU v5e", "v5e:2x2x1", "v5litepod-4", 16_911_433_728)}
"""The room is what libtpu 0.0.42 names: "exceeds available HBM (15.75G)"."""

_TPU_LIBRARY = "libtpu/libtpu.so"


@contextmanager
def for_device(name: str | None) -> Iterator[Target | None]:
    """Programs inside are compiled for a device by its name, or for this machine's.

    Raises:
        PlanError: If no device has that name.
        MissingPackageError: If the compiler of its platform is not there.
    """
    described = None if name is None else described_device(name)
    with compiling_for(described):
        yield described


def described_device(name: str) -> Target:
    """A device by its name: "h100", "h200", "a100", "l4" or "v5e".

    Raises:
        PlanError: If no device has that name.
        MissingPackageError: If the compiler of its platform is not there.
    """
    lower = name.lower() if isinstance(name, str) else name
    own = ", or none for this machine's own device"
    known = word_of("device", lower, (*CHIPS, *TPUS), own)
    if known in CHIPS:
        return _gpu(known, CHIPS[known], compilers_folder())
    return _tpu(known, TPUS[known], compilers_folder())


def compilers_folder() -> Path:
    """Where compilers of other platforms are: `$RETAPE_DEVICES`, or in the cache."""
    if given := os.environ.get("RETAPE_DEVICES"):
        return Path(given).expanduser()
    return user_cache() / f"devices-{jax.__version__}"


@cache
def _gpu(name: str, chip: Chip, folder: Path) -> Target:
    library, data = folder / _PLUGIN, folder / _LIBDEVICE
    if not (library.is_file() and (data / "nvvm").is_dir()):
        release = jax.__version__
        raise MissingPackageError(
            f"`device={name!r}` needs the compiler for NVIDIA's GPUs, 600 MB, in a "
            f"folder of its own. Run `pip install --no-deps --target {folder} "
            f"jax-cuda13-plugin=={release} jax-cuda13-pjrt=={release} nvidia-nvvm`.",
            name="jax_cuda13_plugin",
        )
    options = {"xla_gpu_autotune_level": 0, "xla_gpu_cuda_data_dir": str(data)}

    @cache
    def devices(count: int) -> Sequence[Any]:
        return pjrt_topology("cuda", str(library), _description(chip, count))

    # Three quarters are what JAX takes of a GPU.
    return Target(name, chip.title, "cuda", chip.memory * 3 // 4, devices, options)


@cache
def _tpu(name: str, chip: Tpu, folder: Path) -> Target:
    library = folder / _TPU_LIBRARY
    if not library.is_file():
        release = next(
            (r for r in requires("jax") or () if r.startswith("libtpu")), "libtpu"
        )
        raise MissingPackageError(
            f"`device={name!r}` needs the compiler for TPUs, 140 MB, in a folder of "
            f"its own. Run `pip install --no-deps --target {folder} "
            f"'{release.partition(';')[0].strip()}'`.",
            name="libtpu",
        )
    # It would ask the cloud for these, and print that it found none.
    host = {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": chip.host,
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
    }
    with _environment(host):
        devices = pjrt_topology("tpu", str(library), {}, chip.topology)
    return Target(name, chip.title, "tpu", chip.room, lambda count: devices, {})


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _description(chip: Chip, count: int) -> dict[str, Any]:
    """So many chips of a host, each in the text format of `GpuTargetConfigProto`."""
    major, minor = chip.capability
    config = f"""
        gpu_device_info {{
            threads_per_block_limit: 1024 threads_per_warp: 32
            shared_memory_per_block: 49152 shared_memory_per_core: {chip.shared}
            shared_memory_per_block_optin: {chip.shared - 1024}
            threads_per_core_limit: {chip.threads} core_count: {chip.cores}
            fpus_per_core: {chip.lanes} block_dim_limit_x: 2147483647
            block_dim_limit_y: 65535 block_dim_limit_z: 65535
            memory_bandwidth: {chip.bandwidth} l2_cache_size: {chip.l2}
            clock_rate_ghz: {chip.clock} device_memory_size: {chip.memory}
            cuda_compute_capability {{ major: {major} minor: {minor} }}
            registers_per_core_limit: 65536 registers_per_block_limit: 65536
        }}
        platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 12 }}
        runtime_version {{ major: 13 minor: 0 patch: 0 }}
        device_description_str: "{chip.title}"
    """
    return {"target_config": config, "topology": f"1x1x{count}"}
