"""A function that is compiled for its calls, each program once.

A call is looked up by its signature first: shapes, types, fixed values, devices and
settings, as under `jax.jit`. If it is new the function is traced; the program may still
be one that was compiled before, for another wrapper of the same function say:
`retape.jax.grad(f)(x)` makes a new one each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.dtypes import float0
from jax.extend import core

from retape.engines.jaxpr.api._trace import FlatCall, flatten_call
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import (
    is_staged,
    trace_context,
    under_transformation,
)
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.jaxprs._subprogram import hoist
from retape.engines.jaxpr.xla._ahead_of_time import (
    aot_compile,
    call_compiled,
    looks_for_nans,
)
from retape.engines.jaxpr.xla._interruptible import interruptible

NEEDS_NUMBERS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
)
"""The errors of JAX for a function that looks at the value of a traced number."""

Executable = Callable[..., Any]
Places = tuple[tuple[jax.sharding.Sharding, bool], ...]
"""Where each argument is, and whether it must be there."""


_own = threading.local()


def is_traced_once() -> bool:
    """Tell whether what is traced now becomes a part of a program of the user's.

    Under a `jax.jit` of theirs, that is: what is traced for a call outside of it is
    looked up when the same is called again.
    """
    return is_staged() and not getattr(_own, "kept", False)


@contextmanager
def _kept() -> Iterator[None]:
    before, _own.kept = getattr(_own, "kept", False), True
    try:
        yield
    finally:
        _own.kept = before


class Cached:
    """A function of a call, compiled once for each signature.

    As under `jax.jit`, the user's function is traced once for each set of shapes, types
    and fixed values. Inside another transformation nothing is cached: the trace belongs
    to that transformation.

    Args:
        run: From a call, its leaves, and whether it is traced once in all.
    """

    def __init__(self, run: Callable[[FlatCall, Sequence[Any], bool], Any]) -> None:
        self.run = run
        self.compiled: dict[Any, Executable] = {}
        self.needs_numbers: set[Any] = set()

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], always: Sequence[int]
    ) -> Any:
        pieces = flatten_call(args, kwargs, always=always)
        key = pieces.signature()
        if key in self.needs_numbers:
            return self.fixed(args, kwargs, always)
        try:
            return self.once(pieces, key)
        except NEEDS_NUMBERS:
            # The function looks at the value of a number, as it may under `jax.grad`.
            result = self.fixed(args, kwargs, always)
            self.needs_numbers.add(key)
            return result

    def fixed(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], always: Sequence[int]
    ) -> Any:
        pieces = flatten_call(args, kwargs, numbers=False, always=always)
        return self.once(pieces, (pieces.signature(), "fixed"))

    def once(self, pieces: FlatCall, key: Any) -> Any:
        if under_transformation(pieces.leaves) or looks_for_nans():
            return self.run(pieces, pieces.leaves, is_traced_once())
        # Here, since the thread that runs the program has not the caller's settings.
        leaves = list(map(jnp.asarray, pieces.leaves))
        signature = (
            key,
            tuple(map(jax.typeof, leaves)),
            placements(leaves),
            trace_context(),
        )
        compiled = None if key is None else self.compiled.get(signature)
        if compiled is None:
            shell = pieces.shell()
            compiled = _compiled(lambda given: self.run(shell, given, False), leaves)
            if key is not None:
                self.compiled[signature] = compiled
        return interruptible(compiled, leaves)


def placements(values: Sequence[jax.Array]) -> Places:
    """Where some values are, and whether they must be."""
    return tuple((v.sharding, v.committed) for v in values)


def _compiled(run: Callable[..., Any], leaves: Sequence[jax.Array]) -> Executable:
    """A function of a list of arrays, for arrays of these types in these places."""

    fixed: dict[int, Any] = {}
    trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        outs, tree = jax.tree_util.tree_flatten(run(leaves))
        trees.append(tree)
        # What stands for the gradient by an integer is no array of a device.
        fixed.update((i, v) for i, v in enumerate(outs) if _dtype(v) == float0)
        return [v for i, v in enumerate(outs) if i not in fixed]

    with jax.disable_jit(False), _kept():
        closed = jax.make_jaxpr(flat)(*leaves)
    program, own = hoist(closed)
    # Of 64 bits where the program has them: a sweep counts in 64 bits at any setting.
    with jax.enable_x64(True):
        pairs = zip(own, program.in_avals, strict=False)
        consts = [_array(value, aval) for value, aval in pairs]
    places = placements([*consts, *leaves])
    executable = _executable(deduplicate(program, names=True), places)

    def compiled(*given: Any) -> Any:
        outs = list(call_compiled(executable, *consts, *given))
        for i, value in sorted(fixed.items()):
            outs.insert(i, value)
        return trees[-1].unflatten(outs)

    return compiled


def _dtype(value: Any) -> Any:
    return jax.typeof(value).dtype


def _array(value: Any, aval: Any) -> jax.Array:
    return value if isinstance(value, jax.Array) else jnp.asarray(value, aval.dtype)


@cached(64)
def _executable(program: core.ClosedJaxpr, places: Places) -> Executable:
    """The program, compiled for arguments in these places."""
    types = [
        jax.ShapeDtypeStruct(
            v.shape, v.dtype, weak_type=v.weak_type, sharding=where if fixed else None
        )
        for v, (where, fixed) in zip(program.in_avals, places, strict=True)
    ]
    with jax.enable_x64(True):
        return aot_compile(core.jaxpr_as_fun(program), *types)
