"""Marked loop bodies, and carries that wait in the host's memory.

JAX moves a saved value to the host if a policy says so of its *name*. So the carry is
given one inside the marked body, whose recomputation then begins at the named value:
the device keeps none. On the CPU, host and device memory are one, and nothing is won.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core

from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.jaxprs._jax_internals import (
    classic_rules,
    with_new_rules,
)
from retape.engines.jaxpr.layers.remat._checkpoint import checkpoint
from retape.engines.jaxpr.layers.remat._names import Names, check_names
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.engines.jaxpr.layers.remat._strategies import Strategy
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
    if isinstance(policy, Names):
        body = _with_names_checked(body, policy)
    if isinstance(policy, Strategy):
        body, policy = checkpoint(body, policy=policy), None
        if offload is None:
            return body
    if offload is None:
        # A loop's body cannot be merged with its recomputation: no barrier.
        return _marked_body(body, policy)
    check_host_memory()
    named = lambda carry, x: body(checkpoint_name(carry, _NAME), x)  # noqa: E731
    return _marked_body(named, _and_offload(policy))


def _marked_body(body: Body, policy: Policy | None) -> Body:
    """The body under `jax.checkpoint`, in the form that loops in loops keep.

    Marks of the new kind (`jax_remat3`) in a marked loop keep more: 58 MB of a decoder
    of 48 layers in segments of 6, where classic ones keep 25 (JAX 0.12.0).
    """
    if not with_new_rules():
        return jax.checkpoint(body, policy=policy, prevent_cse=False)

    def run(carry: Any, x: Any) -> tuple[Any, Any]:
        closed, tree = _as_program(body, carry, x)
        with classic_rules():
            flat = core.jaxpr_as_fun(as_classic(closed))
            marked = jax.checkpoint(flat, policy=policy, prevent_cse=False)
            return jax.tree.unflatten(tree, marked(*jax.tree.leaves((carry, x))))

    return run


def _as_program(body: Body, carry: Any, x: Any) -> tuple[core.ClosedJaxpr, Any]:
    """The body as a program, and the structure of what it returns."""
    leaves, tree = jax.tree.flatten((carry, x))

    def flat(*leaves: Any) -> Any:
        return body(*jax.tree.unflatten(tree, leaves))

    closed, shape = jax.make_jaxpr(flat, return_shape=True)(*leaves)
    return closed, jax.tree.structure(shape)


def _with_names_checked(body: Body, policy: Names) -> Body:
    """The body; names in the policy that it does not have are warned of."""

    def checked(carry: Any, x: Any) -> tuple[Any, Any]:
        closed, tree = _as_program(body, carry, x)
        check_names(policy, as_classic(closed).jaxpr, "the body of the loop")
        outs = core.jaxpr_as_fun(closed)(*jax.tree.leaves((carry, x)))
        return jax.tree.unflatten(tree, outs)

    return checked


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
