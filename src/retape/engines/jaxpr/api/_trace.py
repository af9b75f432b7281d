"""From a Python function to a closed program, as plain `jax.grad` would see it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.calls._shard_map import (
    call_divergent_loops,
    call_inside_shard_map,
)
from retape.engines.jaxpr.intake._effects import let_happen, take_out
from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.intake._known_rules import (
    open_known_rules,
    replace_known_rules,
)
from retape.engines.jaxpr.jaxprs._avals import as_weak
from retape.engines.jaxpr.jaxprs._jax_internals import classic_rules
from retape.engines.jaxpr.jaxprs._subprogram import hoist
from retape.plan._base import Plan


@dataclass(frozen=True, slots=True)
class FlatCall:
    """A call's arguments, taken apart: arrays are traced, all else is fixed."""

    leaves: tuple[Any, ...]
    """The arrays, in order."""
    tree: Any
    fixed: tuple[tuple[int, Any], ...]
    """Leaves that are not arrays, with their positions."""

    def arguments(
        self, leaves: Sequence[Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments, from other arrays of the same types."""
        whole = list(leaves)
        for position, value in self.fixed:
            whole.insert(position, value)
        return jax.tree_util.tree_unflatten(self.tree, whole)

    def traced_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with `None`, which is no leaf, for what is not traced."""
        gaps = replace(self, fixed=tuple((i, None) for i, _ in self.fixed))
        return gaps.arguments(self.leaves)

    def positional(self) -> int:
        """How many positional arguments the call has."""
        return len(self.arguments(self.leaves)[0])

    def owners(self) -> list[int]:
        """For each array, the positional argument that it is part of (-1: keyword)."""
        args, kwargs = self.arguments([_ARRAY] * len(self.leaves))
        found: list[int] = []
        for number, part in [*enumerate(args), (-1, kwargs)]:
            leaves = jax.tree_util.tree_leaves(part)
            found += [number for leaf in leaves if leaf is _ARRAY]
        return found

    def signature(self) -> Any:
        """Cache key of a trace, besides types; `None` if it cannot be hashed."""
        key = (self.tree, self.fixed, tuple(type(v) for _, v in self.fixed))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def shell(self) -> FlatCall:
        """The same without the arrays' values, which a cache must not keep alive."""
        return replace(self, leaves=(_ARRAY,) * len(self.leaves))

    def with_leaves(self, leaves: Sequence[Any]) -> FlatCall:
        """The same with other arrays."""
        return replace(self, leaves=tuple(leaves))


_ARRAY = object()
"""Stands for an array where only the structure matters."""


def flatten_call(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    numbers: bool = True,
    always: Sequence[int] = (),
    types: bool = False,
) -> FlatCall:
    """Split a call's arguments into arrays and fixed values.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        numbers: Whether Python's numbers are traced (else they are fixed values).
        always: Positional arguments whose numbers are traced in any case.
        types: Whether types of arrays stand for arrays.
    """
    chosen = {i % len(args) for i in always}
    leaves: list[Any] = []
    traced: list[bool] = []
    for number, part in enumerate((*args, kwargs)):
        for leaf in jax.tree_util.tree_leaves(part):
            leaves.append(leaf)
            stands = types and isinstance(leaf, jax.ShapeDtypeStruct)
            own = stands or is_array(leaf, numbers=numbers or number in chosen)
            traced.append(own)
    tree = jax.tree_util.tree_structure((args, kwargs))
    fixed = tuple((i, v) for i, v in enumerate(leaves) if not traced[i])
    return FlatCall(
        tuple(v for v, t in zip(leaves, traced, strict=True) if t), tree, fixed
    )


def is_array(value: Any, *, numbers: bool) -> bool:
    """Tell whether a leaf can be traced."""
    if isinstance(value, (bool, int, float, complex)):
        return numbers
    return isinstance(value, (jax.Array, np.ndarray, np.generic)) or hasattr(
        value, "__jax_array__"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A call's program, of constants and then of the call's arrays."""

    program: core.ClosedJaxpr
    """Without side effects; no `shard_map` hides a loop to be reversed."""
    consts: tuple[Any, ...]
    """What is closed over: some of it may be tracers of a transformation."""
    tree: Any
    """The structure of the result."""
    types: Sequence[Any]
    """Those of the result's arrays, as JAX gives them."""
    acting: core.ClosedJaxpr | None
    """The program with its side effects, if it has any: to be run once beside it."""
    acting_consts: tuple[Any, ...]

    def act(self, leaves: Sequence[Any]) -> None:
        """Let the side effects happen, once."""
        let_happen(self.acting, [*self.acting_consts, *leaves])

    def result(self, outs: Sequence[Any]) -> Any:
        """What the function returns, from the outputs of its program."""
        return jax.tree_util.tree_unflatten(self.tree, as_weak(outs, self.types))


def trace(
    fun: Callable[..., Any], call: FlatCall, plan: Plan | None, *, marked: bool = False
) -> Traced:
    """The program of a call.

    Args:
        fun: The function.
        call: Its arguments.
        plan: How its reverse mode is divided.
        marked: Whether pieces of the program are differentiated by JAX, as those of a
            marked function are: what JAX cannot reverse becomes a call that it can.

    Raises:
        UnsupportedError: If the program has side effects that cannot be taken out.
        PlanError: If the plan cannot be kept inside a `shard_map`.
    """

    # With the user's name and signature, which JAX speaks of in its errors.
    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = call.arguments(jax.tree_util.tree_leaves((args, kwargs)))
        return fun(*args, **kwargs)

    # With `jit` off JAX runs loops in Python, which needs numbers: there are none here.
    with jax.disable_jit(False), classic_rules():
        args, kwargs = call.traced_arguments()
        jaxpr, shape = jax.make_jaxpr(named, return_shape=True)(*args, **kwargs)
    pure, acting = take_out(as_classic(jaxpr))
    pure = call_known_rules(pure) if marked else open_known_rules(pure)
    tree = jax.tree_util.tree_structure(shape)
    parted = call_divergent_loops(call_inside_shard_map(pure, plan), plan)
    program, consts = hoist(parted)
    beside, more = (None, []) if acting is None else hoist(acting)
    return Traced(program, tuple(consts), tree, jaxpr.out_avals, beside, tuple(more))


def call_known_rules(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with every known rule a call of its primal, reversed by steps.

    A rule that is known (`intake/_known_rules`) stands before a loop that JAX cannot
    reverse. The step machine goes through that loop, so it is put in the rule's place.
    In a marked function JAX takes the derivative of each piece. So there the loop is
    handed over as a call, which has every derivative, of all orders, wherever JAX meets
    it:

        before:  y = custom_vjp_call[call_jaxpr={ while ... }, bwd=...] x
        after:   y = retape_call[while ...] x
    """
    return replace_known_rules(
        jaxpr, lambda primal, values: call(open_known_rules(primal), None, values)
    )
