"""Memory of a program as its compiler reports it; nothing is run or allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._avals import is_inexact
from retape.engines.jaxpr.jaxprs._evaluate import vjp_by, which
from retape.engines.jaxpr.xla._memory_report import MemoryReport as MemoryReport
from retape.engines.jaxpr.xla._standalone import memory_of, places_of
from retape.storage._trees._arrays import digest_array


def footprint(
    fun: Callable[..., Any],
    *args: Any,
    names: frozenset[Any] = frozenset(),
    donated: Sequence[int] = (),
) -> MemoryReport:
    """Compile a function for its arguments' types, and ask what each device needs.

    Args:
        fun: The function.
        *args: The types of its arguments: with shardings, where they have some.
        names: Axes that collectives in it speak of.
        donated: Positions of arguments whose place results may take.

    Raises:
        UnsupportedError: If the compiler does not tell, or a type names a mesh of more
            devices than there are.
    """
    owners = [i for i, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    given = [at for at, i in enumerate(owners) if i in donated]
    structs, tree = jax.tree.flatten(args)
    flat = lambda *leaves: fun(*jax.tree.unflatten(tree, leaves))  # noqa: E731
    memory = memory_of(flat, structs, names, donated=given)
    if memory is None:
        places_of(structs)  # It refuses a mesh for which there are too few devices.
        raise UnsupportedError(
            "this platform's compiler does not tell what a program takes. Compile for "
            "the CPU (`jax.default_device`), or choose `levels` or a plan yourself."
        )
    return memory


@dataclass(frozen=True, slots=True)
class Constant:
    """An array that is compiled into a program, known by its contents."""

    digest: bytes
    value: Any = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of a function's inputs where its gradient is taken.

    Attributes:
        moving: Whether a derivative by each of them is wanted.
        constants: The array of each that is one whatever the program is called with.
            Compiled it takes other temporaries than an argument does (jaxlib 0.10.2):
            of an array all of one value the compiler makes a broadcast, as large as the
            array; of one that a loop runs over it makes a copy; what follows from
            constants alone it may compute.
    """

    moving: tuple[bool, ...]
    constants: tuple[Constant | None, ...]

    @classmethod
    def among(cls, values: Sequence[Any], moving: Sequence[bool], held: int) -> Inputs:
        """Of values, the first of which a function closes over.

        Where some are traced, the others are constants, too. Outside of `jax.jit` all
        are arrays: constants are those that would be there.
        """
        traced = any(isinstance(v, Tracer) for v in values)
        kept = len(values) if traced else held
        found = (constant_of(v) if i < kept else None for i, v in enumerate(values))
        return cls(tuple(moving), tuple(found))

    def behind(self, consts: Sequence[Any]) -> Inputs:
        """The same inputs with constants in front."""
        return Inputs(
            (*(False for _ in consts), *self.moving),
            (*map(constant_of, consts), *self.constants),
        )


def constant_of(value: Any) -> Constant | None:
    """What a program holds of an array; `None` if that has to be handed to it."""
    if isinstance(value, Tracer) or jax.dtypes.issubdtype(
        value.dtype, jax.dtypes.extended
    ):
        return None
    if isinstance(value, jax.Array) and len(value.devices()) > 1:
        return None
    array = np.asarray(value)
    digest = blake2b(digest_size=16)
    digest_array(digest, array)
    return Constant(digest.digest(), array)


def gradients(
    fun: Callable[..., Sequence[Any]], structs: Sequence[Any], inputs: Inputs
) -> tuple[list[Callable[..., Any]], tuple[Any, ...]]:
    """Programs for the derivative by the moving inputs, and their arguments' types.

    The gradient without the value, and with it: a program for the gradient alone has
    room where the value would have been made, or lacks room that was free after it was.
    Cotangents are those of a gradient for a scalar, else any that come.
    """
    by = which(inputs.moving)
    free = [s for s, c in zip(structs, inputs.constants, strict=True) if c is None]

    def chosen(values: Sequence[Any]) -> list[Any]:
        return [out for out in fun(values) if is_inexact(out)]

    def pulled(values: Sequence[Any]) -> Any:
        rest = iter(values)
        every = [next(rest) if c is None else c.value for c in inputs.constants]
        return vjp_by(lambda *every: chosen(every), every, by)

    def valued(values: Sequence[Any], seeds: Any = None) -> Any:
        outs, pull = pulled(values)
        return outs, pull([jnp.ones_like(outs[0])] if seeds is None else seeds)

    outs = jax.eval_shape(chosen, list(structs))
    scalar = len(outs) == 1 and not outs[0].shape
    return [lambda *a: valued(*a)[1], valued], (free,) if scalar else (free, outs)
