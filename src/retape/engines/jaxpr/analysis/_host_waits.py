"""How often the host of a GPU would wait, counted by running a program.

By XLA:GPU's rules, read in November 2026 (`WhileThunk`, `ConditionalThunk`):

- a loop whose trip count is not known tests it once a turn and once more, and the host
  waits for each test: trips + 1;
- a conditional waits once, for the number of its branch;
- a loop of known trip count, a `scan`, is enqueued without a wait.

A `while` counts as one of unknown trip count even where the compiler would find out, so
that the count is from above. The program hands on, beside its values, a row of counts
for each loop and conditional: how often it was come to, and how many turns it made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._evaluate import begun, bind
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, scan_parts
from retape.engines.jaxpr.jaxprs._primitive_table import callee
from retape.engines.jaxpr.jaxprs._rewrite import contains
from retape.engines.jaxpr.jaxprs._scalar_ops import own_types
from retape.engines.jaxpr.jaxprs._subprogram import closed

Callee = Callable[[core.JaxprEqn], core.ClosedJaxpr | None]
"""The program that an equation calls, if it is a plain call."""


class Count(NamedTuple):
    """How often a loop or a conditional was come to, and the turns that it made."""

    operation: str
    entries: int
    turns: int


def counted(
    jaxpr: core.ClosedJaxpr, values: Sequence[Any], body: Callee = callee
) -> tuple[list[Any], list[Count]]:
    """The results of a program, and its counts, of the outer before the inner.

    Args:
        jaxpr: The program.
        values: Its inputs.
        body: What a call calls.

    Raises:
        UnsupportedError: If code for each device of a mesh has loops or conditionals.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> def halvings(x):
        ...     return jax.lax.while_loop(lambda v: v > 1, lambda v: v // 2, x)
        >>> results, counts = counted(jax.make_jaxpr(halvings)(8), [8])
        >>> int(results[0]), counts
        (1, [Count(operation='while', entries=1, turns=3)])
    """
    counting = _Counting(jaxpr, body)
    with own_types():
        zeros = jnp.zeros((len(counting.known), 2), "int64")
        run = jax.jit(lambda *args: counting.run(jaxpr, *args))
        outs, counts = run(_as_arrays(values, jaxpr.in_avals), zeros)
    rows = zip(counting.known.values(), counts.tolist(), strict=True)
    found = [
        Count(eqn.primitive.name, *row) for (_, eqn, _), row in rows if _makes_wait(eqn)
    ]
    return list(outs), found


Counts = jax.Array
Outs = tuple[Sequence[Any], Counts]


class _Counting:
    """A program as a function that counts.

    Args:
        jaxpr: The program.
        body: What a call calls.
    """

    def __init__(self, jaxpr: core.ClosedJaxpr, body: Callee) -> None:
        # The equations are kept, so that their identities are no others'.
        self.known: dict[int, tuple[int, core.JaxprEqn, list[core.ClosedJaxpr]]] = {}
        self.number(jaxpr, body)

    def number(self, jaxpr: core.ClosedJaxpr, body: Callee) -> None:
        """Give rows to equations in which somebody waits, to the outer ones first."""
        for eqn in jaxpr.eqns:
            if id(eqn) not in self.known and _holds_waits(eqn):
                inside = _programs(eqn, body)
                self.known[id(eqn)] = len(self.known), eqn, inside
                for program in inside:
                    self.number(program, body)

    def run(
        self, jaxpr: core.ClosedJaxpr, values: Sequence[Any], counts: Counts
    ) -> Outs:
        env = begun(jaxpr, values)
        for eqn in jaxpr.eqns:
            ins = env.read_all(eqn.invars)
            if id(eqn) in self.known:
                ins = _as_arrays(ins, [a.aval for a in eqn.invars])
                outs, counts = self.rule(eqn, ins, counts)
            else:
                outs = bind(eqn, ins)
            env.write(eqn.outvars, outs)
        return env.read_all(jaxpr.jaxpr.outvars), counts

    def rule(self, eqn: core.JaxprEqn, ins: list[Any], counts: Counts) -> Outs:
        row, _, programs = self.known[id(eqn)]
        match eqn.primitive.name:
            case "while":
                return self.while_(eqn.params, row, programs, ins, counts)
            case "cond":
                arms = [lambda *args, p=p: self.run(p, *args) for p in programs]
                return lax.switch(ins[0], arms, ins[1:], counts.at[row, 0].add(1))
            case "scan":
                return self.scan(eqn.params, programs[0], ins, counts)
            case _:
                return self.run(programs[0], ins, counts)

    def while_(
        self,
        params: dict[str, Any],
        row: int,
        programs: list[core.ClosedJaxpr],
        ins: list[Any],
        counts: Counts,
    ) -> Outs:
        c, b = params["cond_nconsts"], params["body_nconsts"]
        first, second, carry = ins[:c], ins[c : c + b], ins[c + b :]

        def tested(carry: Sequence[Any], counts: Counts) -> Any:
            (going,), counts = self.run(programs[0], [*first, *carry], counts)
            return going, _as_arrays(carry, programs[1].out_avals), counts

        def turn(state: Any) -> Any:
            _, carry, counts = state
            carry, counts = self.run(programs[1], [*second, *carry], counts)
            return tested(carry, counts.at[row, 1].add(1))

        start = tested(carry, counts.at[row, 0].add(1))
        return lax.while_loop(lambda state: state[0], turn, start)[1:]

    def scan(
        self,
        params: dict[str, Any],
        program: core.ClosedJaxpr,
        ins: list[Any],
        counts: Counts,
    ) -> Outs:
        n, carries = scan_parts(params)
        fixed, carry, xs = ins[:n], ins[n : n + carries], ins[n + carries :]

        def turn(state: Any, xs: Any) -> Any:
            outs, counts = self.run(program, [*fixed, *state[0], *xs], state[1])
            outs = _as_arrays(outs, program.out_avals)
            return (outs[:carries], counts), outs[carries:]

        how = {name: params[name] for name in ("length", "reverse")}
        (carry, counts), ys = lax.scan(turn, (carry, counts), xs, **how)
        return [*carry, *ys], counts


def _makes_wait(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name in ("while", "cond")


def _holds_waits(eqn: core.JaxprEqn) -> bool:
    inner = jaxprs_in_params(eqn.params)
    return _makes_wait(eqn) or any(contains(j, _makes_wait) for j in inner)


def _programs(eqn: core.JaxprEqn, body: Callee) -> list[core.ClosedJaxpr]:
    """What an equation runs, in which somebody waits."""
    if eqn.primitive.name in ("while", "cond", "scan", "custom_vjp_call"):
        return list(map(closed, jaxprs_in_params(eqn.params)))
    found = body(eqn)
    if found is None:
        raise UnsupportedError(
            f"Waits inside `{eqn.primitive.name}` cannot be counted: its loops or "
            "conditionals run on each device by themselves. Count the waits of the "
            "function that it is given, on one device's part."
        )
    return [found]


def _as_arrays(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """The values; Python's numbers as arrays of their types in the program."""
    return [
        v if hasattr(v, "dtype") else jnp.asarray(v, aval.dtype)
        for v, aval in zip(values, avals, strict=True)
    ]
