"""The engine as a `driver.Machine`: the host steers, the device runs.

`advance` and `reverse` are compiled once each, from the same nests as the sweep in one
program. A capsule is a tuple of arrays (program counter, registers, and for a durable
store the kept values) where JAX left them; what is stored or recorded can be NumPy
arrays, which any store can write to disk. Use it for runs that must survive a crash,
show their progress, or keep snapshots where the device cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Aval
from retape.engines.jaxpr.jaxprs._avals import blank, nbytes
from retape.engines.jaxpr.jaxprs._scalar_ops import own_types
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.sweep._compiled_steps import compiled_steps
from retape.engines.jaxpr.sweep._state import seed
from retape.engines.jaxpr.xla._standalone import is_explicit
from retape.plan._options import Loops

Capsule = tuple[Any, ...]
Cotangent = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Those of all active places, and the program's outputs, once they are known."""


class JaxprMachine:
    """A program and its operands as a machine that the library's driver can run.

    Args:
        compiled: The program.
        operands: Inputs, then constants.
        seeds: Cotangents of the active outputs.
        stage: The longest stage: it fixes the size of the tape.
        on_host: Whether a store is given NumPy arrays, as durable ones need them.
        loops: "device" for loops of known trip count, as a GPU needs them.
        gives_place: Whether `reverse` may write over the cotangent that it is given, as
            in a run, where nobody asks for it again.
    """

    def __init__(
        self,
        compiled: Compiled,
        operands: Sequence[Any],
        seeds: Sequence[Any],
        *,
        stage: int,
        on_host: bool = False,
        loops: Loops | None = None,
        gives_place: bool = False,
    ) -> None:
        self.motions = compiled_steps(compiled, stage, loops, gives_place=gives_place)
        self.compiled = self.motions.compiled
        # Python's numbers take the types that they were traced with.
        pairs = zip(operands, compiled.program.operands, strict=True)
        self.operands = tuple(_as_type(v, var.aval) for v, var in pairs)
        self.seeds = tuple(seeds)
        self.on_host = on_host
        self.places = self.motions.places
        self.active = self.motions.active

    # The protocol ------------------------------------------------------------------

    def length(self) -> int | None:
        """Steps of a run, or `None` if only running it can tell."""
        return self.compiled.program.length

    def start(self) -> Capsule:
        """The capsule before step 0."""
        blank = self.compiled.layout.blank
        return (jnp.int32(0), *map(blank, self.places))

    def advance(self, capsule: Capsule, steps: int) -> tuple[Capsule, Any]:
        """Run up to `steps` steps; also how many were made."""
        with own_types():
            values, made = self.motions.advance(
                self._loaded(capsule), self.operands, np.int64(steps)
            )
        return tuple(values), made

    def reverse(
        self, capsule: Capsule, steps: int, cotangent: Cotangent | None
    ) -> Cotangent:
        """Tape `steps` steps and sweep them back; seeds the sweep if `None` came."""
        given = self._seeded() if cotangent is None else self._cotangents(cotangent)
        with own_types():
            after, outs = self.motions.reverse(
                self._loaded(capsule), self.operands, np.int64(steps), tuple(given)
            )
        known = tuple(outs) if cotangent is None else cotangent[1]
        return tuple(after), tuple(known)

    def nbytes(self, capsule: Capsule) -> int:
        """Bytes of a capsule."""
        del capsule
        return 4 + sum(nbytes(self.compiled.layout.avals[p]) for p in self.places)

    def finish(self, cotangent: Cotangent) -> tuple[list[Any], list[Any]]:
        """The program's outputs, and the cotangents of its active operands."""
        found, outs = self._cotangents(cotangent), cotangent[1]
        mine = [
            jnp.asarray(c)
            for p, c in zip(self.active, found, strict=True)
            if p.kind == "operand"
        ]
        types = [o.aval for o in self.compiled.program.outs]
        pairs = zip(outs, types, strict=True)
        return [_to_device(v, t) for v, t in pairs], mine

    # Cotangents ------------------------------------------------------------------

    def _seeded(self) -> list[Any]:
        """Cotangents at the end of the run."""
        layout = self.compiled.layout
        state: State = {("d", p): blank(layout.avals[p]) for p in self.active}
        seed(self.compiled, self.seeds, state)
        return [state["d", p] for p in self.active]

    def _cotangents(self, cotangent: Cotangent) -> list[Any]:
        """Those of all active places, on the device."""
        avals = self.compiled.layout.avals
        pairs = zip(cotangent[0], self.active, strict=True)
        return [_to_device(c, avals[p]) for c, p in pairs]

    # Between host and device ---------------------------------------------------------

    def to_store(self, tree: Any) -> Any:
        """A capsule or a cotangent in the form for the store."""
        if not self.on_host:
            return tree
        for value in jax.tree.leaves(tree):
            # All copies begin before one is waited for.
            if isinstance(value, jax.Array):
                value.copy_to_host_async()
        return jax.tree.map(_to_host, tree)

    def _loaded(self, capsule: Capsule) -> list[Any]:
        avals = self.compiled.layout.avals
        types = [Aval((), np.dtype(np.int32)), *(avals[p] for p in self.places)]
        return [_to_device(v, t) for v, t in zip(capsule, types, strict=True)]


def _as_type(value: Any, aval: Aval) -> Any:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        return value
    return jnp.asarray(value, aval.dtype)


def _to_host(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        value = jax.random.key_data(value)
    return np.asarray(value)


def _to_device(value: Any, aval: Aval) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        kind = jax.random.key_impl(blank(Aval((), aval.dtype)))
        return _on_devices(
            jax.random.wrap_key_data(jnp.asarray(value), impl=kind), aval
        )
    # NumPy's file format does not know bfloat16 and its like by name.
    return _on_devices(
        value.view(aval.dtype) if value.dtype.kind == "V" else value, aval
    )


def _on_devices(value: Any, aval: Aval) -> Any:
    """On the devices that an Explicit type names; elsewhere XLA decides."""
    if not is_explicit(aval):
        return jnp.asarray(value)
    mesh = jax.sharding.get_mesh()
    return jax.device_put(value, NamedSharding(mesh, aval.sharding.spec))
