"""`instead(value, held)`: the number is `held`'s, the derivative goes by `value`.

Both are equal; only what is kept in memory, and by what way it is come by, differs. A
primitive and not a `custom_jvp`, whose body would say that `value` plays no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from retape.engines.jaxpr.jaxprs._avals import in_front, is_inexact

instead_p = core.Primitive("retape_with_primal")


def with_primal(value: Any, held: Any) -> Any:
    """`held`, an equal of `value`, with the derivative of `value`."""
    if not is_inexact(value):
        return held
    return instead_p.bind(value, lax.stop_gradient(held))


def _primal_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    # The tangent of `held` is that of a stopped gradient, whatever is handed in.
    return instead_p.bind(*primals), ad.instantiate_zeros(tangents[0])


def _primal_batch(values: Sequence[Any], dims: Sequence[Any]) -> Any:
    return instead_p.bind(*in_front(values, dims)), 0


instead_p.def_impl(lambda value, held: held)
instead_p.def_abstract_eval(lambda value, held: held)
ad.primitive_jvps[instead_p] = _primal_jvp
batching.primitive_batchers[instead_p] = _primal_batch
mlir.register_lowering(instead_p, lambda context, value, held: [held])
