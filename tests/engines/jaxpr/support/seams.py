"""The seams of the JAX engine: all that its tests take from inside.

Whoever rebuilds the inside keeps what stands here, and with it the tests:

    form_after    what a pass of the pipeline makes of a program
    text          that, as text
    compiled      what the last pass makes: the program, its places, its functions
    lying         a pass that makes something else; its checker must say so
    finely        small programs are opened and cut as large ones are
    forget        no program is known any more
    kernel        a program as one kernel of the CPU's

The form that passes work on has its own names: `Program`, `Loop`, `Block`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

import retape.jax
from retape.engines.jaxpr import _pipeline
from retape.engines.jaxpr.codegen import _split_blocks
from retape.engines.jaxpr.codegen._min_cut import choose_residuals
from retape.engines.jaxpr.codegen._pretty import pretty_layout, pretty_tape
from retape.engines.jaxpr.control._numbers import TRACED, loopless
from retape.engines.jaxpr.ir._ir import (
    Aval,
    Block,
    Jump,
    Label,
    Lit,
    Loop,
    Position,
    Program,
    Read,
    Var,
    Write,
    blocks_of,
)
from retape.engines.jaxpr.ir._pretty import pretty
from retape.engines.jaxpr.jaxprs._primitive_table import TABLE, Again, Also, Kernel
from retape.engines.jaxpr.layers.loops._segment_lengths import Nest, nest
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cutter,
    least_peak,
    least_work_cut,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph, graph_of
from retape.engines.jaxpr.sizing import _cost_model
from retape.engines.jaxpr.xla import _single_kernel

__all__ = ["Block", "Jump", "Label", "Lit", "Loop", "Read", "Var", "Write", "blocks_of"]
"""The form that passes work on."""
__all__ += ["Aval", "Position"]
__all__ += ["TABLE", "Again", "Also", "Kernel"]
"""What is known of JAX's operations."""
__all__ += ["TRACED", "choose_residuals", "loopless", "nest"]
__all__ += ["Cutter", "Graph", "Nest", "graph_of", "least_peak", "least_work_cut"]
"""Choices that brute force can make, too."""
best_bounds, max_tape_bytes = _split_blocks._bounds, _split_blocks.max_tape_bytes
"""Where a block is cut, and what the dearest one tapes."""

Function = Callable[..., Any]
GRAIN = _pipeline.GRAIN
"""Bytes of residuals below which a call leaves a scan closed."""
WHOLE: dict[str, Any] = {"grain": 0, "piece": None}
"""Every scan is opened, and no block is cut."""


class _There(Exception):
    """The pass that was asked about has run."""


def form_after(name: str, fun: Function, *args: Any, **options: Any) -> Any:
    """What a pass makes of a function, before the next pass goes on with it.

    A jaxpr, a `Program`, a pair of that and its places, or the functions of blocks.
    """
    found: list[Any] = []

    def watch(passed: str, output: Any) -> None:
        if passed == name:
            found.append(output)
            raise _There

    try:
        compiled(fun, *args, watch=watch, **options)
    except _There:
        return found[0]
    raise AssertionError(f"there is no pass `{name}`")


def compiled(fun: Function, *args: Any, **options: Any) -> Any:
    """What all passes make of a function, to be derived by all real numbers."""
    jaxpr = jax.make_jaxpr(fun)(*args)
    active = [jnp.issubdtype(v.dtype, jnp.inexact) for v in jaxpr.in_avals]
    return _pipeline.compile_program(jaxpr, active, **WHOLE | options)


def passes() -> list[str]:
    """The names of all passes, in order."""
    told: list[str] = []
    compiled(jnp.sin, 1.0, piece=1, watch=lambda name, _: told.append(name))
    return told


@contextmanager
def lying(name: str, lie: Function) -> Iterator[None]:
    """Spoil what a pass makes, wherever it runs.

    The lie is given what the pass made, or the program that it changed, and what the
    pass was given. It returns something to stand in its place, or changes it.
    """
    honest = getattr(_pipeline, name)

    def lies(*given: Any, **options: Any) -> Any:
        made = honest(*given, **options)
        made = given[0] if made is None else made
        other = lie(made, *given)
        return made if other is None else other

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pipeline, name, lies)
        forget()
        yield
    forget()


@contextmanager
def finely(**options: Any) -> Iterator[None]:
    """Whatever is compiled is opened (`grain`) and cut (`piece`) like this.

    No step is so cheap that it is counted first.
    """
    told = _pipeline.compile_program.__kwdefaults__ | WHOLE | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pipeline.compile_program, "__kwdefaults__", told)
        patch.setattr(_cost_model, "_FEW_OPERATIONS", 0)
        forget()
        yield
    forget()


def forget() -> None:
    """Forget what this library remembers; JAX keeps what it compiled."""
    with mock.patch("jax.clear_caches"):
        retape.jax.clear_caches()


# Text -----------------------------------------------------------------------------


def text(form: Any) -> str:
    """What a pass made, as text."""
    match form:
        case core.ClosedJaxpr():
            return "\n".join(_outline(form.jaxpr))
        case Program():
            return pretty(form)
        case (Program() as program, layout):
            return pretty_layout(program, layout)
        case _ if all(hasattr(v, "halves") for v in form.values()):
            return pretty_tape(form)
        case _:
            return "\n".join(
                f"block {c.number}: {' '.join(_names(c.jaxpr)) or 'nothing'}"
                for c in form.values()
            )


def _names(jaxpr: core.ClosedJaxpr) -> list[str]:
    return [eqn.primitive.name for eqn in jaxpr.eqns]


def _outline(jaxpr: Any, margin: str = "") -> list[str]:
    """Names of operations, those of inner programs below: JAX's text changes."""
    lines: list[str] = []
    for eqn in jaxpr.eqns:
        length = eqn.params.get("length")
        times = f" {length} times" if length else ""
        lines.append(margin + eqn.primitive.name + times)
        for inner in core.jaxprs_in_params(eqn.params):
            lines += _outline(getattr(inner, "jaxpr", inner), margin + "  ")
    return lines


def operations(jaxpr: core.ClosedJaxpr) -> list[str]:
    """The names of all operations of a program, however deep."""
    return [line.split()[0] for line in _outline(jaxpr.jaxpr)]


# Kernels --------------------------------------------------------------------------

LARGEST, SUMMED = _single_kernel.LARGEST, _single_kernel.SUMMED
"""Elements of the largest arrays that a kernel works on, and sums up at once."""


def kernel(fun: Function, *args: Any) -> core.ClosedJaxpr:
    """A function of arrays as one kernel, if it can be one."""
    one = lambda *given: _single_kernel.in_one_kernel(fun, *given)  # noqa: E731
    return _single_kernel.mark_kernels(jax.make_jaxpr(one)(*args))
