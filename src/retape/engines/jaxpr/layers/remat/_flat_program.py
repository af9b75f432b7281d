"""A function as a row of operations, which can be cut between any two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.analysis._flops import flops
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._primitive_table import Also, callee, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains, known_length
from retape.engines.jaxpr.jaxprs._subprogram import excerpt, hoist, variables


@dataclass(frozen=True, eq=False)
class Graph:
    """A program without nested calls, its constants among its inputs.

    Attributes:
        jaxpr: The program.
        held: How many of its first inputs are arrays that the function closes over.
    """

    jaxpr: core.Jaxpr
    held: int = 0

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
            if is_a(eqn, Also.VIEW) and seen.issuperset(variables(eqn.invars)):
                found[eqn.outvars[0]] = eqn
                seen.update(eqn.outvars)
        return found

    @cached_property
    def is_mostly_loops(self) -> bool:
        """Whether scans do most of its work."""
        work = [(flops(eqn), is_loop(eqn)) for eqn in self.jaxpr.eqns]
        return 2 * sum(f for f, loop in work if loop) > sum(f for f, _ in work)

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


def is_loop(eqn: Any) -> bool:
    """Whether an operation is a scan of more than one step."""
    return eqn.primitive.name == "scan" and known_length(eqn) > 1


def is_nested(eqn: Any) -> bool:
    """Whether an operation is such a loop with others in its body."""
    return is_loop(eqn) and contains(eqn.params["jaxpr"], is_loop)


def graph_of(closed: core.ClosedJaxpr, held: int = 0) -> tuple[Graph, list[Any]]:
    """The graph of a program, and the constants that are its first inputs.

    Args:
        closed: The program.
        held: How many of its first inputs are constants already.
    """
    program, consts = hoist(closed)
    graph, more = _graph_of_inputs(program, len(consts) + held)
    return graph, [*more, *consts]


@cached(256)
def _graph_of_inputs(
    program: core.ClosedJaxpr, held: int
) -> tuple[Graph, Sequence[Any]]:
    """The same of a program without constants; those are of the calls in it."""
    consts: list[Any] = []
    if any(is_a(eqn, Also.INLINE) for eqn in program.eqns):
        types = map(struct, program.in_avals)
        whole = partial(_evaluate_opened, program)
        program, consts = hoist(jax.make_jaxpr(whole)(*types))
    # What makes nothing has no place in an order by what is made.
    eqns = [eqn for eqn in program.eqns if eqn.outvars]
    graph = Graph(program.jaxpr.replace(eqns=eqns), len(consts) + held)
    return graph, tuple(consts)


def _evaluate_opened(program: core.ClosedJaxpr, *values: Any) -> list[Any]:
    return evaluate(program, values, _bind_opened)


def _bind_opened(eqn: core.JaxprEqn, values: list[Any]) -> list[Any]:
    """Evaluate an equation; of a call what it calls."""
    if not is_a(eqn, Also.INLINE):
        return bind(eqn, values)
    body = callee(eqn)
    assert body is not None, "a call without a program"
    return _evaluate_opened(body, *values)
