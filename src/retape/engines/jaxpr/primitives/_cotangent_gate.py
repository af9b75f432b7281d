"""Mapped runs whose derivatives end where each of them ended.

Under `vmap` a loop goes on until the last run has stopped, and takes the others along:
what it computes for them is thrown away. Their derivatives are zero times that of a
step beyond the end, which is NaN if that is infinite there:

    while v < 4:  v = v + sqrt(4 - v)       a run that stopped at 5: 0 * inf

So the values that a body starts from go through a gate, open for the runs that need
it, as JAX itself does it for the branches of a `cond`:

    select(needed, v, stop_gradient(v))     its cotangent: select(needed, dv, 0)

Only `vmap` knows where gates are needed, so they are put in before it, as a primitive,
and those that it leaves are taken out again. A gate is a call with a name of its own:
the branches of a `cond` are under conditions that are not the loop's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import batching

from retape.engines.jaxpr.jaxprs._avals import is_inexact, struct
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import rewrite

gate_p = core.Primitive("retape_cotangent_gate")


def with_gates(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with gates before the bodies of its loops."""
    return rewrite(jaxpr, _gate_handled, _loop)


def without_gates(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program without the gates that `vmap` had no use for."""
    return rewrite(jaxpr, lambda e: e.primitive is gate_p, lambda _, values: values[1:])


def _gate_handled(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "while" and not eqn.effects


def _loop(eqn: core.JaxprEqn, values: Sequence[Any]) -> Sequence[Any]:
    # Bound as it is: the test of a loop that was mapped before is an array, which goes
    # on for all of them while one does.
    n, m = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    test = core.jaxpr_as_fun(eqn.params["cond_jaxpr"])
    step = core.jaxpr_as_fun(with_gates(eqn.params["body_jaxpr"]))

    def body(*given: Any) -> Sequence[Any]:
        needed = jnp.any(test(*given[:n], *given[n + m :])[0])
        return step(*_gate_impl(needed, given[n:]))

    values = [*values[:n], *values]
    made = jax.make_jaxpr(body)(*(struct(jax.typeof(v)) for v in values[n:]))
    params = eqn.params | {"body_jaxpr": made, "body_nconsts": n + m}
    return bind(eqn.replace(params=params), values)


def _gate_impl(needed: Any, values: Sequence[Any]) -> list[Any]:
    real = [is_inexact(jax.typeof(v)) for v in values]
    return [
        gate_p.bind(needed, v) if r else v for v, r in zip(values, real, strict=True)
    ]


def _gate_batch(values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    if None in dims:
        # All runs need it, or it is the same for all and no derivative goes there.
        return values[1], dims[1]
    needed, value = (jnp.moveaxis(v, d, 0) for v, d in zip(values, dims, strict=True))
    return jax.jit(retape_gated)(needed, value), 0


def retape_gated(needed: Any, value: Any) -> Any:
    """A value whose cotangent is zero where it is not needed."""
    spread = struct(jax.typeof(value)).sharding
    needed = lax.broadcast_in_dim(needed, value.shape, (0,), out_sharding=spread)
    return lax.select(needed, value, lax.stop_gradient(value))


def is_gated(body: core.Jaxpr, active: Sequence[bool], lanes: tuple[int, ...]) -> bool:
    """True if all that a derivative goes to, of what a body reads, is behind gates.

    Args:
        body: The body of a loop.
        active: For each of its inputs, whether a derivative goes there.
        lanes: The shape of the loop's test. Gates for fewer are for some of them at
            once.
    """
    gated: set[Any] = set()
    for eqn in body.eqns:
        called = is_a(eqn, Also.JIT)
        if called and eqn.params["name"] == retape_gated.__name__:
            needed, value = eqn.invars
            aval: Any = needed.aval
            gated |= {value} if aval.shape == lanes else set()
    return all(v in gated for v, a in zip(body.invars, active, strict=True) if a)


gate_p.def_impl(lambda needed, value: value)
gate_p.def_abstract_eval(lambda needed, value: value)
batching.primitive_batchers[gate_p] = _gate_batch
