"""A whole sweep as one kernel, on the CPU, where its arrays are small.

XLA's CPU compiler makes a kernel of every fused group of operations, and runs a loop by
calling one after the other: some 50 ns and 15 ms of compiling for each. A sweep over
small arrays has a few hundred of them, most of them a scalar each. The compiler can
also emit a called function as a single kernel, control flow and all; it does so by
itself for tiny loops, and for any call that carries an attribute of its own:

    sweep:    found = results(while(unfinished, turn, initial()))
    lowered:  found = call(...)  {inlineable = "false", xla_cpu_small_call = "true"}

That is a hint. Results change by rounding at most, since sums and functions may be
compiled in another way. On the paper's example (Fig. 8, 1000 elements) it takes a third
to a half off the time, and a fifth to a third off compiling. A kernel runs on one core
and calls no library, so only programs of small elementwise work are marked. What a
kernel cannot hold the compiler refuses, or hands to a library before it looks (a matrix
product, a sum over 4096 elements), so the lists below are of what a test compiles, and
they hold for the releases of JAX with which it was run.

The mark is set when a program is lowered, for then no transformation can change what is
inside any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import elements, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, was_tried
from retape.engines.jaxpr.jaxprs._primitive_table import Also, Kernel, is_a, traits
from retape.engines.jaxpr.jaxprs._rewrite import contains, with_inside
from retape.engines.jaxpr.jaxprs._subprogram import in_line
from retape.engines.jaxpr.xla._parallel_sums import in_parts, is_long

NAME = "retape_kernel"
LARGEST = 4096
"""Elements of the largest array that is worked on: beyond, a call costs nothing."""
SUMMED = 2048
"""Elements of the largest that is summed up at once; long sums are made in parts."""
MOST = 3000
"""Equations, inner ones too: one function of the compiler's takes them all."""


def _enabled(wish: str | None) -> bool:
    """As the environment says, else where the lists below were tried out."""
    return was_tried() if wish is None else wish != "0"


ENABLED = _enabled(os.environ.get("RETAPE_ONE_KERNEL"))
"""`RETAPE_ONE_KERNEL=0` leaves every sweep to XLA's own ways."""

_DTYPES = frozenset(
    np.dtype(t)
    for t in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
    )
)


def in_one_kernel(fun: Callable[..., list[Any]], *values: Any) -> list[Any]:
    """`fun(*values)`, in one kernel if that is possible.

    Args:
        fun: From trees of values to a list. It reads nothing but what is handed to it.
        values: Its arguments.
    """
    return kernel(fun)(*values)


def kernel(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in one kernel if that is possible; traced once for a type.

    Args:
        fun: From trees of values to one. It reads nothing but what is handed to it.
    """

    def retape_kernel(*given: Any) -> Any:
        return fun(*given)

    return jax.jit(retape_kernel)


@cached(256)
def mark_kernels(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with each sweep that can be one kernel marked for the compiler.

    Code for each device of a mesh stays as it is, even if there is one device: outside
    of its mesh it cannot be traced again.
    """
    if contains(jaxpr, _is_for_each_device) or not contains(jaxpr, _can_be_one):
        return jaxpr
    return _with_marked(jaxpr)


def _with_marked(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    # By equations: tracing all programs around a sweep again took a quarter to a half
    # of lowering it (30 to 130 ms).
    eqns = [new for old in closed.eqns for new in _marked_eqns(old)]
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))


def _marked_eqns(eqn: core.JaxprEqn) -> list[core.JaxprEqn]:
    if _can_be_one(eqn):
        types = [struct(a.aval) for a in eqn.invars]
        return in_line(jax.make_jaxpr(partial(_marked_call, eqn))(*types), eqn)
    return [with_inside(eqn, _with_marked)]


def _is_for_each_device(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "shard_map"


def _can_be_one(eqn: Any) -> bool:
    if not is_a(eqn, Also.JIT) or eqn.params["name"] != NAME:
        return False
    body = eqn.params["jaxpr"]
    # What is empty XLA takes out, and then nothing uses the input.
    empty = any(0 in v.aval.shape for v in eqn.invars)
    whole = body.jaxpr.eqns and not body.consts and not empty
    return bool(whole) and fits(body.jaxpr)


def _marked_call(eqn: core.JaxprEqn, *values: Any) -> list[Any]:
    """The call, marked.

    The compiler stops the process at an input that no operation uses, so all of them
    are handed back; and a constant is hidden from it, since it would draw that in. What
    is marked is a call around the old one, which the compiler puts in line: the sweep
    is not traced again.
    """
    inner = eqn.replace(params=eqn.params | {"jaxpr": in_parts(eqn.params["jaxpr"])})

    def retape_kernel(*given: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return bind(inner, list(given)), given

    outs, _ = jax.jit(retape_kernel)(*lax.optimization_barrier(list(values)))
    hint = partial(set_xla_metadata, inlineable="false", xla_cpu_small_call="true")
    return [hint(outs[0]), *outs[1:]]


@cached(16)
def fits(jaxpr: core.Jaxpr) -> bool:
    """Tell whether the program is of small work that one kernel can do."""
    budget = _equations(jaxpr)
    return budget is not None and budget <= MOST


def _equations(jaxpr: core.Jaxpr) -> int | None:
    """Equations of a program, the inner ones too; `None` if one does not fit."""
    total = 0
    for eqn in jaxpr.eqns:
        if not _allowed(eqn):
            return None
        total += 1
        for inner in jaxprs_in_params(eqn.params):
            if isinstance(inner, core.ClosedJaxpr):
                inner = inner.jaxpr
            count = _equations(inner)
            if count is None:
                return None
            total += count
    return total


def _allowed(eqn: Any) -> bool:
    name, held = eqn.primitive.name, traits(eqn).kernel
    touched = [*eqn.invars, *eqn.outvars]
    if eqn.effects or not all(_is_plain(v.aval) for v in touched):
        return False
    match held:
        case Kernel.NEVER:
            return False
        case Kernel.BODY:
            return all(_scalar(c) for c in _consts(eqn))
        case Kernel.PART:
            return all(_is_small_array(v.aval) for v in _worked_on(eqn))
        case Kernel.SUM:
            shape, most = eqn.invars[0].aval.shape, LARGEST if is_long(eqn) else SUMMED
            return elements(shape) <= most and (name != "cumsum" or len(shape) == 1)
        case Kernel.ROW if elements(eqn.invars[1].aval.shape[:-1]) > 1:
            return False
        case Kernel.SHAPE if name == "broadcast_in_dim" and not touched[0].aval.shape:
            return True  # to fill a buffer is no work
        case _:
            return all(_is_small_array(v.aval) for v in touched)


def _worked_on(eqn: Any) -> list[Any]:
    """The parts of arrays that a kernel works on, where that is not all of them."""
    match eqn.primitive.name:
        case "dynamic_slice":
            return list(eqn.outvars)
        case "dynamic_update_slice":
            return [eqn.invars[1]]
        case _:
            return []  # a barrier is no work


def _consts(eqn: core.JaxprEqn) -> list[Any]:
    inner = jaxprs_in_params(eqn.params)
    closed = [j for j in inner if isinstance(j, core.ClosedJaxpr)]
    return [c for j in closed for c in j.consts]


def _scalar(value: Any) -> bool:
    return np.ndim(value) == 0


def _is_plain(aval: Any) -> bool:
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return False
    return np.dtype(dtype) in _DTYPES


def _is_small_array(aval: Any) -> bool:
    return elements(aval.shape) <= LARGEST
