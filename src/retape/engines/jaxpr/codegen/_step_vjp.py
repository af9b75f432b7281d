"""The whole reverse steps of all blocks, which may hold less at once."""

from __future__ import annotations

import jax
from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.xla._sink_weight_gradients import lean


@cached(64)
def step_vjps(compiled: Compiled, thrift: bool) -> dict[Label, core.ClosedJaxpr]:
    """The derivatives of all blocks.

    Args:
        compiled: The program.
        thrift: Whether they hold less at once; then they take a truth in front.
    """
    found = {label: taped.whole for label, taped in compiled.taped.items()}
    if not thrift:
        return found
    wide = next(iter(compiled.taped.values())).wide
    with jax.enable_x64(wide):
        return {label: lean(jaxpr) for label, jaxpr in found.items()}
