"""A function of NNX objects, run with another scan in the place of `jax.lax.scan`.

NNX has no hook for the scan that its own transform calls. So that transform is left to
do all its work (splitting the modules, merging a layer, checking aliases, collecting
what a layer changed) while it is traced to a jaxpr. In the jaxpr its loop is one
equation, whose body is a pure function of arrays. That equation is evaluated by the
scan that was asked for; all others as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol

import jax
from flax import nnx
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import scan_parts

TAG = "retape.nnx.remat_scan"


class Scan(Protocol):
    """A replacement of `jax.lax.scan`, called with lists of arrays."""

    def __call__(
        self,
        f: Callable[[Any, Any], Any],
        init: Any,
        xs: Any,
        *,
        length: int,
        reverse: bool,
        unroll: int,
        _split_transpose: bool,
    ) -> tuple[Any, Any]: ...


def with_scan(f: Callable[..., Any], scan: Scan) -> Callable[..., Any]:
    """`f`, which takes and gives back NNX objects, with its one scan replaced.

    Objects among the arguments are changed as `f` changes them. As under `nnx.scan`, a
    second call with the same structure and shapes does not trace `f` again.
    """

    @jax.jit
    def run(pure: Any) -> Any:
        leaves, tree = jax.tree.flatten(pure)

        def flat(*leaves: Any) -> Any:
            return _inner(f, tree.unflatten(leaves))

        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        return jax.tree.structure(shapes).unflatten(_evaluate(closed, leaves, scan))

    @wraps(f)
    @nnx.update_context(TAG)
    def outer(*args: Any, **kwargs: Any) -> Any:
        pure = run(nnx.to_tree((args, kwargs), ctxtag=TAG))
        _, out = nnx.from_tree(pure, ctxtag=TAG, is_inner=False)
        return out

    return outer


def _inner(f: Callable[..., Any], pure: Any) -> Any:
    """Merge the arguments, call, split the arguments and the result."""
    args, kwargs = nnx.from_tree(pure, ctxtag=TAG, is_inner=True)
    out = f(*args, **kwargs)
    arguments, result = nnx.to_tree(((args, kwargs), out), ctxtag=TAG)
    # Arrays among the arguments cannot have changed.
    objects = jax.tree.map(
        lambda x: x if isinstance(x, nnx.NodeStates) else None,
        arguments,
        is_leaf=lambda x: isinstance(x, nnx.NodeStates),
    )
    return objects, result


def _evaluate(
    closed: core.ClosedJaxpr, args: Sequence[Any], scan: Scan
) -> list[jax.Array]:
    """The outputs of a jaxpr, its one scan done by `scan`."""
    _check_one_scan(closed.jaxpr)

    def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
        return _scan(eqn, inputs, scan) if _is_scan(eqn) else bind(eqn, inputs)

    return evaluate(closed, args, rule)


def _is_scan(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "scan"


def _check_one_scan(jaxpr: core.Jaxpr) -> None:
    count = sum(_is_scan(eqn) for eqn in jaxpr.eqns)
    if count != 1:
        raise UnsupportedError(
            f"nnx.scan was traced to a program with {count} scans at its top level. "
            "remat_scan puts its own loop in the place of exactly one. This release "
            "of Flax or of JAX builds nnx.scan in another way: use one that Retape "
            "supports (see its extra 'nnx')."
        )


def _scan(eqn: core.JaxprEqn, inputs: list[Any], scan: Scan) -> list[Any]:
    """An equation of `jax.lax.scan`: constants, carries and slices, in this order."""
    params = eqn.params
    first, carries = scan_parts(params)
    last = first + carries
    constants, init, xs = inputs[:first], inputs[first:last], inputs[last:]
    body = core.jaxpr_as_fun(params["jaxpr"])

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        out = body(*constants, *carry, *x)
        return list(out[: len(init)]), list(out[len(init) :])

    carry, ys = scan(
        step,
        init,
        xs,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
        # Releases of JAX differ in whether the equation tells.
        _split_transpose=params.get("_split_transpose", False),
    )
    return [*carry, *ys]
