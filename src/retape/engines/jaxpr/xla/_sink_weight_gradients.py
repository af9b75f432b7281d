"""A derivative that holds less at once: cotangents of weights in branches of their own.

The cotangent of a weight matrix is a product of two arrays, of which one at least is
often no more than arithmetic on values that are there anyway. XLA is free to compute
those factors early and all the products last, and then all factors of a block are
alive together. So each such product is evaluated inside a `lax.cond` whose predicate is
always true, which the compiler cannot know, and its factors are computed there again:

    before:  g = gelu h;  dw = dot g dy;  dh = ...
    after:   dw = cond truth (dot (gelu h) dy) else ...;  dh = ...

A branch ends before the next operation begins, and frees what it made. That costs the
arithmetic twice, and none of the products. Measured on the second half of a transformer
layer (4 x 128 tokens of 128 floats): 6.8 MB before, 3.7 MB after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import nbytes, struct
from retape.engines.jaxpr.jaxprs._evaluate import Environment, begun, dce
from retape.engines.jaxpr.jaxprs._primitive_table import Again, Also, is_a, traits
from retape.engines.jaxpr.jaxprs._subprogram import variables
from retape.engines.jaxpr.xla._scalar_guards import dummy_like

_LARGE = 1 << 16
"""Bytes of factors from which on a branch is worth it."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A cotangent that is evaluated in a branch."""

    out: Any
    given: tuple[Any, ...]
    """Values from which it follows by arithmetic and one product."""
    eqns: tuple[core.JaxprEqn, ...]


def lean(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """`(truth, *ins) -> outs`, with the products that are outputs in branches."""
    inner = jaxpr.jaxpr
    products = _products(inner)
    apart = {p.out for p in products}

    def run(truth: Any, *values: Any) -> list[Any]:
        env = begun(jaxpr, values)
        found: dict[Any, Any] = {}
        for eqn in inner.eqns:
            env.run(eqn)
            for product in products:
                if product.out not in found and all(v in env for v in product.given):
                    found[product.out] = _branch(product, env, truth)
        env.write(apart, (found[v] for v in apart))
        return env.read_all(inner.outvars)

    types = list(map(struct, jaxpr.in_avals))
    return dce(jax.make_jaxpr(run)(jax.ShapeDtypeStruct((), np.bool_), *types))


def _products(jaxpr: core.Jaxpr) -> list[_Product]:
    """Outputs that are one product, which nobody else reads."""
    maker: dict[Any, core.JaxprEqn] = {v: e for e in jaxpr.eqns for v in e.outvars}
    reads = Counter(a for e in jaxpr.eqns for a in variables(e.invars))
    found: list[_Product] = []
    for out in dict.fromkeys(variables(jaxpr.outvars)):
        chain: list[core.JaxprEqn] = []
        eqn, alone = maker.get(out), reads[out] == 0
        while eqn is not None and alone and is_a(eqn, Also.PRODUCT_VIEW):
            chain.append(eqn)
            alone = reads[eqn.invars[0]] == 1
            eqn = maker.get(eqn.invars[0])
        if eqn is None or not alone or eqn.primitive.name != "dot_general":
            continue
        if sum(nbytes(a.aval) for a in eqn.invars) >= _LARGE:
            found.append(_product(out, [eqn, *chain], maker, jaxpr.eqns))
    return found


def _product(
    out: Any,
    end: Sequence[core.JaxprEqn],
    maker: dict[Any, core.JaxprEqn],
    eqns: Sequence[core.JaxprEqn],
) -> _Product:
    """Go back from a product through arithmetic, to where dear values begin."""
    chosen = {id(e) for e in end}
    given: dict[Any, None] = {}
    stack = list(variables(end[0].invars))
    while stack:
        var = stack.pop()
        eqn = maker.get(var)
        if eqn is not None and traits(eqn).again >= Again.TWICE:
            if id(eqn) not in chosen:
                chosen.add(id(eqn))
                stack += variables(eqn.invars)
        else:
            given[var] = None
    return _Product(out, tuple(given), tuple(e for e in eqns if id(e) in chosen))


def _branch(product: _Product, env: Environment, truth: Any) -> Any:
    def compute(given: list[Any]) -> Any:
        local = Environment()
        local.write(product.given, given)
        for eqn in product.eqns:
            local.run(eqn)
        return local.read(product.out)

    def pretend(given: list[Any]) -> Any:
        return dummy_like(product.out.aval, given)

    return lax.cond(truth, compute, pretend, env.read_all(product.given))
