"""The few values that integers and truths of a program may have, where they are known.

Equation by equation: what follows from known values is evaluated, for each of them. An
unknown truth value is one of two, so that `False & unknown` is `False`; of any other
value without a row here nothing is known (`None`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend import core

from retape.engines.jaxpr.analysis._opaque_primitives import implementation
from retape.engines.jaxpr.jaxprs._evaluate import Environment, evaluate
from retape.engines.jaxpr.jaxprs._primitive_table import callee
from retape.engines.jaxpr.jaxprs._rewrite import programs_of

Possible = tuple[Any, ...] | None

_FEW = 16
"""Values of one variable, and combinations of them that are tried."""


def anything(aval: Any) -> Possible:
    """What is known of a value by its type alone."""
    return (np.False_, np.True_) if _is_whole(aval) and aval.dtype == bool else None


def constant(value: Any, aval: Any) -> Possible:
    """What is known of a value that stands in the program."""
    if isinstance(value, Tracer) or not _is_whole(aval):
        return anything(aval)
    return (np.asarray(value, aval.dtype)[()],)


def _is_whole(aval: Any) -> bool:
    """Whether a type is that of a single whole number or truth."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or aval.shape != ():
        return False
    return not jax.dtypes.issubdtype(dtype, jax.dtypes.extended) and (
        np.dtype(dtype).kind in "biu"
    )


class Known(Environment):
    """What is known of a jaxpr's variables, equation by equation."""

    def __init__(self, jaxpr: core.ClosedJaxpr, ins: Sequence[Possible]) -> None:
        super().__init__(literal=lambda a: constant(a.val, a.aval))
        inner = jaxpr.jaxpr
        self.write(inner.invars, ins)
        pairs = zip(inner.constvars, jaxpr.consts, strict=True)
        self.write(inner.constvars, [constant(c, v.aval) for v, c in pairs])

    def learn(self, eqn: core.JaxprEqn) -> None:
        """Take in what an equation tells about its outputs."""
        self.run(eqn, _possible)


def known_outputs(jaxpr: core.ClosedJaxpr, ins: Sequence[Possible]) -> list[Possible]:
    """What is known of a program's outputs."""
    env = Known(jaxpr, ins)
    for eqn in jaxpr.eqns:
        env.learn(eqn)
    return env.read_all(jaxpr.jaxpr.outvars)


def _possible(eqn: core.JaxprEqn, ins: Sequence[Possible]) -> list[Possible]:
    name, avals = eqn.primitive.name, [v.aval for v in eqn.outvars]
    unknown = list(map(anything, avals))
    if name in ("while", "scan") or not any(map(_is_whole, avals)):
        return unknown
    if name == "select_n" and ins[0] is not None:
        cases = [ins[1 + int(which)] for which in ins[0]]
        return [_together(cases, avals[0])]
    if name == "cond":
        arms = eqn.params["branches"]
        chosen = range(len(arms)) if ins[0] is None else map(int, ins[0])
        arms = [arms[min(max(i, 0), len(arms) - 1)] for i in chosen]
        each = zip(*(known_outputs(arm, ins[1:]) for arm in arms), strict=True)
        return [_together(column, a) for column, a in zip(each, avals, strict=True)]
    body = callee(eqn) or implementation(eqn)
    if body is not None:
        return known_outputs(body, ins)
    known = combinations(ins)
    if known is None or not all(map(_is_whole, avals)) or asks_others(eqn):
        return unknown
    with at_once():
        found = [bind_anywhere(eqn, list(values)) for values in known]
    columns = zip(*found, strict=True)
    outs = ([constant(v, a) for v in c] for c, a in zip(columns, avals, strict=True))
    return [_together(each, a) for each, a in zip(outs, avals, strict=True)]


@contextmanager
def at_once() -> Iterator[None]:
    """What is bound inside is run while tracing, on this machine and on no mesh."""
    here = jax.default_device(jax.local_devices(backend="cpu")[0])
    nowhere = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.enable_x64(True), jax.ensure_compile_time_eval(), here, nowhere:
        yield


def asks_others(eqn: core.JaxprEqn) -> bool:
    """Whether an operation does more than compute, or waits for other devices.

    What a symbol of `jax.export` stands for is known to whoever calls the program.
    """
    if eqn.primitive.name == "dim_as_value":
        return True
    return bool(eqn.effects) and not programs_of(eqn) and eqn.primitive.name != "pvary"


def bind_anywhere(eqn: core.JaxprEqn, values: list[Any]) -> Sequence[Any]:
    """Evaluate one equation, though it was written for a device of a mesh."""
    if eqn.primitive.name == "pvary":
        return values
    body = callee(eqn)
    if body is not None:
        return evaluate(body, values, bind_anywhere)
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return out if eqn.primitive.multiple_results else [out]


def combinations(ins: Sequence[Possible]) -> list[tuple[Any, ...]] | None:
    """All that some values may be together; `None` if one is unknown, or for many."""
    known = [values for values in ins if values is not None]
    if len(known) < len(ins) or prod(map(len, known)) > _FEW:
        return None
    return list(product(*known))


def _together(cases: Iterable[Possible], aval: Any) -> Possible:
    """What is known of a value that is one of several."""
    found: dict[Any, None] = {}
    for values in cases:
        if values is None:
            return anything(aval)
        found.update(dict.fromkeys(values))
    return tuple(found) if len(found) <= _FEW else anything(aval)
