"""Marked loop bodies, and carries that wait in the host's memory.

JAX moves a saved value to the host if a policy says so of its *name*. So the carry is
given one inside the marked body, whose recomputation then begins at the named value:
the device keeps none. On the CPU, host and device memory are one, and nothing is won.

Marks are of the form that loops in loops keep: those of the new kind (`jax_remat3`) in
a marked loop keep more, 58 MB of a decoder of 48 layers in segments of 6, where classic
ones keep 25 (JAX 0.12.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from retape.engines.jaxpr.api._trace import flatten_call, trace
from retape.engines.jaxpr.layers.remat._flat_program import graph_of
from retape.engines.jaxpr.layers.remat._policy import Policy, Strategy
from retape.engines.jaxpr.primitives._host_buffer import HOST, check_host_memory

Body = Callable[[Any, Any], tuple[Any, Any]]

_NAME = "retape.carry"
_DEVICE = "device"


def rematerialised_body(body: Body, policy: Policy | None, offload: str | None) -> Body:
    """A loop's body that is recomputed in reverse, from the carry that was kept.

    Args:
        body: `(carry, x) -> (carry, y)`.
        policy: What else is kept.
        offload: `"host"` to keep the carry there.
    """
    if isinstance(policy, Strategy):
        body, policy = _in_pieces(body, policy), None
        if offload is None:
            return body
    if offload is not None:
        check_host_memory()
        whole, other = body, policy
        body = lambda carry, x: whole(checkpoint_name(carry, _NAME), x)  # noqa: E731
        policy = _and_offload(other)
    # A loop's body cannot be merged with its recomputation: no barrier.
    return jax.checkpoint(body, policy=policy, prevent_cse=False)


def _in_pieces(body: Body, strategy: Strategy) -> Body:
    """The body, run as a strategy says."""

    def run(carry: Any, x: Any) -> tuple[Any, Any]:
        call = flatten_call((carry, x), {})
        traced = trace(body, call, None, marked=True)
        graph, consts = graph_of(traced.program, len(traced.consts))
        outs = strategy.run(graph, [*consts, *traced.consts, *call.leaves])
        return traced.result(outs)

    return run


def _and_offload(policy: Policy | None) -> Policy:
    ours = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[_NAME],
        offload_src=_DEVICE,
        offload_dst=HOST,
    )

    def both(prim: Any, *args: Any, **params: Any) -> Any:
        if policy is None or params.get("name") == _NAME:
            return ours(prim, *args, **params)
        return policy(prim, *args, **params)

    return both
