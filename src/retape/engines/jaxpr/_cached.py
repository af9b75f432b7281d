"""A function that is compiled for its calls, each program once.

A call is looked up by its signature first: shapes, types, fixed values, devices and
settings, as under `jax.jit`. If it is new the function is traced; the program may still
be one that was compiled before, for another wrapper of the same function say:
`retape.jax.grad(f)(x)` makes a new one each time.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from ._alike import seen_before
from ._interrupt import interruptible
from ._primitives import hoist
from ._trace import Call, take_apart, under_transformation

NEEDS_NUMBERS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX raises when a function looks at the value of a traced number."""
_MOST = 64
"""Compiled programs that are remembered beside those of living wrappers."""

Executable = Callable[..., Any]
_executables: OrderedDict[Any, Executable] = OrderedDict()


class Cached:
    """A function of a call, compiled once for each signature.

    As under `jax.jit`, the user's function is traced once for each set of shapes, types
    and fixed values. Inside another transformation nothing is cached: the trace belongs
    to that transformation.
    """

    def __init__(self, run: Callable[[Call, Sequence[Any]], Any]) -> None:
        self.run = run
        self.compiled: dict[Any, Executable] = {}
        self.needs_numbers: set[Any] = set()

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], always: Sequence[int]
    ) -> Any:
        pieces = take_apart(args, kwargs, always=always)
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
        pieces = take_apart(args, kwargs, numbers=False, always=always)
        return self.once(pieces, (pieces.signature(), "fixed"))

    def once(self, pieces: Call, key: Any) -> Any:
        if under_transformation(pieces.leaves):
            return self.run(pieces, pieces.leaves)
        # Here, since the thread that runs the program has not the caller's settings.
        leaves = list(map(jnp.asarray, pieces.leaves))
        signature = key, tuple(map(jax.typeof, leaves)), _places(leaves), _settings()
        compiled = None if key is None else self.compiled.get(signature)
        if compiled is None:
            compiled = _compiled(functools.partial(self.run, pieces.shell()), leaves)
            if key is not None:
                self.compiled[signature] = compiled
        return interruptible(compiled, leaves)


def _settings() -> tuple[Any, ...]:
    """The caller's settings that a trace depends on."""
    config: Any = jax.config
    return (
        config.jax_enable_x64,
        config.jax_default_matmul_precision,
        config.jax_numpy_dtype_promotion,
        config.jax_numpy_rank_promotion,
        jax.sharding.get_abstract_mesh(),
    )


def _places(values: Sequence[jax.Array]) -> tuple[Any, ...]:
    """Where the values are, and whether they must be there."""
    return tuple((v.sharding, v.committed) for v in values)


def _compiled(run: Callable[..., Any], leaves: Sequence[jax.Array]) -> Executable:
    """A function of a list of arrays, for arrays of these types in these places."""

    def flat(*leaves: Any) -> Any:
        return run(leaves)

    closed, shape = jax.make_jaxpr(flat, return_shape=True)(*leaves)
    tree = jax.tree_util.tree_structure(shape)
    program, consts = hoist(closed)
    executable = _executable(seen_before(program, names=True), [*consts, *leaves])
    return lambda *given: tree.unflatten(executable(*consts, *given))


def _executable(program: core.ClosedJaxpr, values: Sequence[Any]) -> Executable:
    """The program compiled for such values, if need be."""
    values = list(map(jnp.asarray, values))
    key = program, _places(values)
    found = _executables.get(key)
    if found is None:
        run = jax.jit(core.jaxpr_as_fun(program))
        found = _executables[key] = run.lower(*values).compile()
    _executables.move_to_end(key)
    if len(_executables) > _MOST:
        _executables.popitem(last=False)
    return found
