"""How often the host of a GPU would wait, counted by running a program.

By XLA:GPU's rules, read in November 2026 (`WhileThunk`, `ConditionalThunk`):

- a loop whose trip count is not known tests it once a turn and once more, and the host
  waits for each test: trips + 1;
- a conditional waits once, for the number of its branch;
- a loop of known trip count, a `scan`, is enqueued without a wait.

A `while` counts as one of unknown trip count even where the compiler would find out, so
that the count is from above. Everything else is evaluated as it is, in pieces that are
compiled: from one loop or conditional to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._evaluate import Environment, begun
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, scan_parts
from retape.engines.jaxpr.jaxprs._primitive_table import callee
from retape.engines.jaxpr.jaxprs._rewrite import contains
from retape.engines.jaxpr.jaxprs._scalar_ops import own_types
from retape.engines.jaxpr.jaxprs._subprogram import closed

Callee = Callable[[core.JaxprEqn], core.ClosedJaxpr | None]
"""The program that an equation calls, if it is a plain call."""


def host_waits(
    jaxpr: core.ClosedJaxpr, values: Sequence[Any], body: Callee = callee
) -> tuple[list[Any], int]:
    """The results of a program, and the number of waits.

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
        >>> results, waits = host_waits(jax.make_jaxpr(halvings)(8), [8])
        >>> int(results[0]), waits
        (1, 4)
    """
    counter = _Interpreter(body)
    with own_types():
        outs = counter.program(jaxpr)(list(map(_of_type, values, jaxpr.in_avals)))
    return outs, counter.waits


def mean_turns(
    jaxpr: core.ClosedJaxpr, values: Sequence[Any], body: Callee = callee
) -> list[float]:
    """How many turns each `while` makes when it is come to, the outer before the inner.

    Args:
        jaxpr: The program, which is run.
        values: Its inputs.
        body: What a call calls.

    Examples:
        >>> import jax
        >>> def halvings(x):
        ...     return jax.lax.while_loop(lambda v: v > 1, lambda v: v // 2, x)
        >>> mean_turns(jax.make_jaxpr(halvings)(8), [8])
        [3.0]
    """
    counter = _Interpreter(body)
    with own_types():
        counter.program(jaxpr)(list(map(_of_type, values, jaxpr.in_avals)))
    return [turns / max(1, entries) for entries, turns in counter.loops]


Run = Callable[[list[Any]], list[Any]]


class _Interpreter:
    """Programs as Python functions that run them and count."""

    def __init__(self, body: Callee) -> None:
        self.body = body
        self.waits = 0
        self.loops: list[list[int]] = []
        self.known: dict[int, tuple[Any, Run]] = {}

    def program(self, jaxpr: core.ClosedJaxpr) -> Run:
        """A function that runs a program; made once for each."""
        found = self.known.get(id(jaxpr))
        if found is None:
            # The program is kept, so that its identity is no other's.
            self.known[id(jaxpr)] = found = jaxpr, self.made(jaxpr)
        return found[1]

    def made(self, jaxpr: core.ClosedJaxpr) -> Run:
        if not contains(jaxpr, self.waits_itself):
            return jax.jit(lambda values: core.jaxpr_as_fun(jaxpr)(*values))
        parts = list(map(self.part, *_pieces(jaxpr.jaxpr, self.holds_waits)))

        def run(values: list[Any]) -> list[Any]:
            env = begun(jaxpr, values)
            for part in parts:
                part(env)
            return env.read_all(jaxpr.jaxpr.outvars)

        return run

    def part(
        self, eqns: list[core.JaxprEqn], outs: list[Any]
    ) -> Callable[[Environment], None]:
        """What runs a piece: one equation that waits, or several that do not."""
        if self.holds_waits(eqns[0]):
            (eqn,) = eqns
            rule = self.rule(eqn)
            return lambda env: env.run(eqn, lambda _, values: rule(values))
        made = {v for e in eqns for v in e.outvars}
        read = (a for e in eqns for a in e.invars)
        ins = [a for a in read if not isinstance(a, core.Literal) and a not in made]
        ins = list(dict.fromkeys(ins))

        @jax.jit
        def quiet(values: list[Any]) -> list[Any]:
            env = Environment()
            env.write(ins, values)
            for eqn in eqns:
                env.run(eqn)
            return env.read_all(outs)

        return lambda env: env.write(outs, quiet(env.read_all(ins)))

    def rule(self, eqn: core.JaxprEqn) -> Run:
        """How an equation is run in which somebody waits."""
        match eqn.primitive.name:
            case "while":
                return self.while_(eqn.params)
            case "cond":
                return self.cond(eqn.params)
            case "scan":
                return self.scan(eqn)
            case _:
                body = self.body(eqn)
                if body is None:
                    body = _with_own_rule(eqn)
                return self.program(closed(body))

    def waits_itself(self, eqn: core.JaxprEqn) -> bool:
        return eqn.primitive.name in ("while", "cond")

    def holds_waits(self, eqn: core.JaxprEqn) -> bool:
        inner = jaxprs_in_params(eqn.params)
        return self.waits_itself(eqn) or any(
            contains(j, self.waits_itself) for j in inner
        )

    def while_(self, params: dict[str, Any]) -> Run:
        test, body = params["cond_jaxpr"], params["body_jaxpr"]
        c, b = params["cond_nconsts"], params["body_nconsts"]
        counts = [0, 0]
        self.loops.append(counts)
        tests, turn = self.program(test), self.program(body)

        def run(values: list[Any]) -> list[Any]:
            first, second, carry = values[:c], values[c : c + b], values[c + b :]
            counts[0] += 1
            while True:
                self.waits += 1
                if not bool(tests([*first, *carry])[0]):
                    return carry
                counts[1] += 1
                carry = turn([*second, *carry])

        return run

    def cond(self, params: dict[str, Any]) -> Run:
        branches = [self.program(branch) for branch in params["branches"]]

        def run(values: list[Any]) -> list[Any]:
            self.waits += 1
            index = min(max(int(values[0]), 0), len(branches) - 1)
            return branches[index](values[1:])

        return run

    def scan(self, eqn: core.JaxprEqn) -> Run:
        params = eqn.params
        n = len(eqn.invars)
        consts, carries = scan_parts(params)
        turn, length = self.program(params["jaxpr"]), params["length"]
        ys = [v.aval for v in eqn.outvars[carries:]]

        def run(values: list[Any]) -> list[Any]:
            fixed, carry = values[:consts], values[consts : consts + carries]
            rows: list[list[Any]] = []
            order = range(length)
            for i in reversed(order) if params["reverse"] else order:
                xs = [v[i] for v in values[consts + carries : n]]
                outs = turn([*fixed, *carry, *xs])
                carry = outs[:carries]
                rows.append(outs[carries:])
            rows = rows[::-1] if params["reverse"] else rows
            stacked = [_stack([r[k] for r in rows], aval) for k, aval in enumerate(ys)]
            return [*carry, *stacked]

        return run


def _with_own_rule(eqn: core.JaxprEqn) -> core.ClosedJaxpr:
    """The program of a function with a derivative of its own (`jax.custom_vjp`)."""
    if eqn.primitive.name not in ("custom_vjp_call", "custom_vjp_call_jaxpr"):
        raise UnsupportedError(
            f"Waits inside `{eqn.primitive.name}` cannot be counted: its loops or "
            "conditionals run on each device by themselves. Count the waits of the "
            "function that it is given, on one device's part."
        )
    params = eqn.params
    return closed(params["call_jaxpr" if "call_jaxpr" in params else "fun_jaxpr"])


def _of_type(value: Any, aval: Any) -> Any:
    """The value; a Python number as an array of its type in the program."""
    return value if hasattr(value, "dtype") else jax.numpy.asarray(value, aval.dtype)


def _stack(rows: list[Any], aval: Any) -> Any:
    return jax.numpy.stack(rows) if rows else jax.numpy.zeros(aval.shape, aval.dtype)


def _pieces(
    jaxpr: core.Jaxpr, holds_waits: Callable[[core.JaxprEqn], bool]
) -> tuple[list[list[core.JaxprEqn]], list[list[Any]]]:
    """Equations in groups, and for each group the variables that others read of it."""
    groups: list[list[core.JaxprEqn]] = []
    open_group = False
    for eqn in jaxpr.eqns:
        alone = holds_waits(eqn)
        if alone or not open_group:
            groups.append([])
        groups[-1].append(eqn)
        open_group = not alone
    readers: dict[Any, set[int]] = {}
    for i, group in enumerate(groups):
        for atom in (a for e in group for a in e.invars):
            if not isinstance(atom, core.Literal):
                readers.setdefault(atom, set()).add(i)
    for atom in jaxpr.outvars:
        if not isinstance(atom, core.Literal):
            readers.setdefault(atom, set()).add(-1)
    outs = [
        [v for e in g for v in e.outvars if readers.get(v, set()) - {i}]
        for i, g in enumerate(groups)
    ]
    return groups, outs
