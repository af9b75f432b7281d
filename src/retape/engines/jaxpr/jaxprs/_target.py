"""The device that programs are compiled for: this machine's, or one that is described.

A setting of JAX's own, so that JAX's caches and ours keep the programs of each device
apart: what is traced may depend on the platform, and what is lowered does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from retape.engines.jaxpr.jaxprs._jax_internals import new_setting


@dataclass(frozen=True, eq=False)
class Target:
    """A device that need not be here: programs are compiled for it, and none is run.

    Attributes:
        name: What a user calls it, "h100" for instance.
        title: What its maker calls it.
        platform: The platform whose form programs get.
        room: Its bytes that a program may take.
        devices: So many of them, where a program's arguments are taken to be.
        options: For the compiler.
    """

    name: str
    title: str
    platform: str
    room: int
    devices: Callable[[int], Sequence[Any]]
    options: dict[str, Any]

    def __repr__(self) -> str:
        return f"<{self.title}>"


_GPUS = frozenset({"cuda", "rocm", "gpu", "oneapi"})
"""Platforms whose host waits for what decides a loop."""

_TARGET: Any = new_setting(
    "retape_target", "The described device that programs are compiled for."
)


def target() -> Target | None:
    """The described device, if programs are compiled for one."""
    return _TARGET.value


def platform() -> str:
    """The platform that programs are compiled for."""
    described = target()
    return jax.default_backend() if described is None else described.platform


def is_gpu(platform: str) -> bool:
    """Tell whether a platform's host waits for what decides a loop."""
    return platform in _GPUS


@contextmanager
def compiling_for(described: Target | None) -> Iterator[None]:
    """Within it programs are compiled for a described device; `None`: for this one."""
    if described is None:
        yield
        return
    with _TARGET(described):
        yield
