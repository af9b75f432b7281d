"""Which form of a sweep a platform gets, chosen when the program is lowered.

Until then a sweep has the host's form. Where it is lowered for a GPU it is made again
for the same arguments in the device's form (`nest/_known_trips`). One that is lowered
for several platforms at once (`jax.export`) has both, and the platform chooses.

A TPU runs loops and conditionals by itself: its sweeps keep the host's form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.jaxprs._provenance import ORIGINS, Origin
from retape.engines.jaxpr.jaxprs._target import is_gpu, platform
from retape.engines.jaxpr.sizing._choose_settings import default_plan
from retape.plan._options import Loops


def platform_loops() -> Loops | None:
    """The form of the default backend's loops."""
    return "device" if is_gpu(platform()) else None


def device_form(
    jaxpr: core.ClosedJaxpr, make: Callable[[Origin], core.ClosedJaxpr]
) -> core.ClosedJaxpr | None:
    """The sweep in the device's form; `None` if it is no sweep, or its form was asked.

    Args:
        jaxpr: The program that is lowered.
        make: What makes the sweep again, by another plan.
    """
    origin = ORIGINS.get(jaxpr)
    if origin is None or isinstance(origin.plan, Rerun):
        return None
    plan = origin.plan or default_plan()
    if plan.loops is not None:
        return None
    return make(origin._replace(plan=replace(plan, loops="device")))


def sweep_form(
    jaxpr: core.ClosedJaxpr,
    make: Callable[[Origin], core.ClosedJaxpr],
    platforms: Sequence[str],
) -> core.ClosedJaxpr:
    """The form of a sweep that a lowering to these platforms takes.

    Only that which is run is made: a budget is fitted by compiling.
    """
    origin = ORIGINS[jaxpr]

    def host() -> core.ClosedJaxpr:
        return make(origin) if origin.provisional else jaxpr

    device = device_form(jaxpr, make) if any(map(is_gpu, platforms)) else None
    return host() if device is None else by_platform(host, device, platforms)


def by_platform(
    make_host: Callable[[], core.ClosedJaxpr],
    device: core.ClosedJaxpr,
    platforms: Sequence[str],
) -> core.ClosedJaxpr:
    """The form that a lowering to these platforms takes; both, where they differ."""
    gpus = list(filter(is_gpu, platforms))
    if len(gpus) == len(platforms):
        return device
    host = make_host()
    if device is host or not gpus:
        return host

    def run(*values: Any) -> Any:
        forms = dict.fromkeys(gpus, core.jaxpr_as_fun(device))
        chosen = {"default": core.jaxpr_as_fun(host), **forms}
        return lax.platform_dependent(*values, **chosen)

    with jax.enable_x64(True):
        return jax.make_jaxpr(run)(*host.in_avals)
