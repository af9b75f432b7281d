"""A function as a row of operations, which can be cut between any two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.extend import core

from .._code import bind
from .._excerpt import excerpt, variables
from .._primitives import hoist

_OPENED = frozenset({"jit", "pjit", "closed_call", "core_call"})
"""Calls that mean no more than their body, and hold it as their one jaxpr."""

_VIEWS = frozenset({"slice", "squeeze", "reshape", "transpose", "broadcast_in_dim"})


@dataclass(frozen=True, eq=False)
class Graph:
    """A program without nested calls, its constants among its inputs."""

    jaxpr: core.Jaxpr

    @cached_property
    def made(self) -> dict[Any, int]:
        """For each variable that is no input, the operation that makes it."""
        return {v: i for i, eqn in enumerate(self.jaxpr.eqns) for v in eqn.outvars}

    @cached_property
    def last(self) -> dict[Any, int]:
        """The last operation that reads each variable; outputs are read last."""
        found: dict[Any, int] = {}
        for i, eqn in enumerate(self.jaxpr.eqns):
            found.update((v, i) for v in variables(eqn.invars))
        size = len(self.jaxpr.eqns)
        found.update((v, size) for v in variables(self.jaxpr.outvars))
        return found

    @cached_property
    def views(self) -> dict[Any, Any]:
        """For each variable that is a mere view of an input, what makes it.

        A view of a view is one, too.
        """
        seen = set(self.jaxpr.invars)
        found: dict[Any, Any] = {}
        for eqn in self.jaxpr.eqns:
            if eqn.primitive.name in _VIEWS and seen.issuperset(variables(eqn.invars)):
                found[eqn.outvars[0]] = eqn
                seen.update(eqn.outvars)
        return found

    def __len__(self) -> int:
        return len(self.jaxpr.eqns)

    def stretch(self, start: int, stop: int) -> core.ClosedJaxpr:
        """The operations from `start` to `stop`, as a program of its own.

        Its inputs are what it reads from before, its outputs what is read later.
        """
        eqns = self.jaxpr.eqns[start:stop]
        own = {v for eqn in eqns for v in eqn.outvars}
        read = dict.fromkeys(v for eqn in eqns for v in variables(eqn.invars))
        return excerpt(
            self.jaxpr,
            [v for v in read if v not in own],
            [v for eqn in eqns for v in eqn.outvars if self.last.get(v, -1) >= stop],
            eqns,
        )


def graph_of(closed: core.ClosedJaxpr) -> tuple[Graph, list[Any]]:
    """The graph of a program, and the constants that are its first inputs."""
    opened, consts = hoist(closed)
    while any(eqn.primitive.name in _OPENED for eqn in opened.jaxpr.eqns):
        run = _opening(opened.jaxpr)
        structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in opened.in_avals]
        opened, more = hoist(jax.make_jaxpr(run)(*structs))
        consts = [*more, *consts]
    return Graph(opened.jaxpr), consts


def _opening(jaxpr: core.Jaxpr) -> Callable[..., list[Any]]:
    """The program with its calls replaced by what they call, one level deep."""

    def run(*values: Any) -> list[Any]:
        return evaluate(jaxpr, values, _bind_opened)

    return run


def _bind_opened(eqn: Any, values: list[Any]) -> list[Any]:
    if eqn.primitive.name not in _OPENED:
        return bind(eqn, values)
    (body,) = core.jaxprs_in_params(eqn.params)
    consts = []
    for held in eqn.params.values():
        if isinstance(held, core.ClosedJaxpr):
            body, consts = held.jaxpr, held.consts
    env = dict(zip(body.constvars, consts, strict=True))
    return evaluate(body, values, bind, env)


def evaluate(
    jaxpr: core.Jaxpr,
    values: Iterable[Any],
    apply: Callable[[Any, list[Any]], list[Any]],
    given: dict[Any, Any] | None = None,
) -> list[Any]:
    """Evaluate a program, each of its operations by `apply`."""
    env = dict(given or {})
    env.update(zip(jaxpr.invars, values, strict=True))
    for eqn in jaxpr.eqns:
        outs = apply(eqn, [read(env, atom) for atom in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(env, atom) for atom in jaxpr.outvars]


def read(env: dict[Any, Any], atom: Any) -> Any:
    """The value of an atom."""
    return atom.val if isinstance(atom, core.Literal) else env[atom]
