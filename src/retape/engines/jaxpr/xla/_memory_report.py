"""What the compiler says that a program takes, asked once for each program.

A search for a budget, and the next for another budget of the same function, meet the
same programs again. Lowering one takes a tenth of what compiling it takes, so what was
reported is remembered by the text of the lowered program: types, shardings, donations
and constants stand in it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._caches import forgotten
from retape.engines.jaxpr.jaxprs._target import is_gpu, platform, target
from retape.engines.jaxpr.xla._ahead_of_time import aot_lower, compiled
from retape.engines.jaxpr.xla._launches import Launches, launches

# Beside the text, what decides on how JAX lets a program be compiled.
_EFFORTS = (
    "jax_default_device",
    "jax_disable_most_optimizations",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_optimization_level",
    "jax_compiler_enable_remat_pass",
)
_REMEMBERED = 4096

_TOO_LARGE = re.compile(r"HLO temporaries \(([\d.]+)([KMG])\) exceeds")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


class MemoryReport(NamedTuple):
    """What a compiled program takes on each device, in bytes.

    Attributes:
        temp: Temporaries, at their most.
        arguments: What it is given.
        results: What it returns, less what takes the place of an argument.
        launches: What it tells the device to do, where that is described.
    """

    temp: int
    arguments: int
    results: int
    launches: Launches | None = None

    @property
    def total(self) -> int:
        """All bytes."""
        return self.temp + self.arguments + self.results


_REPORTS: dict[bytes, MemoryReport | None] = {}
forgotten(_REPORTS.clear)


def memory_report(
    fun: Callable[..., Any], *args: Any, donated: Sequence[int] = ()
) -> MemoryReport | None:
    """The compiler's account of a function; `None` if it gives none.

    Args:
        fun: The function.
        *args: Types of its arguments.
        donated: Positions of those whose place the results may take.
    """
    lowered = aot_lower(fun, *args, donated=donated)
    key = _digest(lowered)
    if key not in _REPORTS:
        if len(_REPORTS) >= _REMEMBERED:
            # Entries stand in the order in which they came.
            del _REPORTS[next(iter(_REPORTS))]
        _REPORTS[key] = _compiled_report(lowered)
    return _REPORTS[key]


def _compiled_report(lowered: jax.stages.Lowered) -> MemoryReport | None:
    try:
        return _reported(compiled(lowered))
    except jax.errors.JaxRuntimeError as error:
        # A TPU's compiler refuses what is too large, and says what that would take.
        said = _TOO_LARGE.search(str(error))
        if said is None or target() is None:
            raise
        temp = round(float(said[1]) * _UNITS[said[2]])
        ends = map(jax.tree.leaves, (lowered.in_avals, lowered.out_info))
        arguments, results = (sum(map(nbytes, each)) for each in ends)
        return MemoryReport(temp, arguments, results)


def _reported(program: jax.stages.Compiled) -> MemoryReport | None:
    told = program.memory_analysis()
    if told is None:
        return None
    results = told.output_size_in_bytes - told.alias_size_in_bytes
    counted = target() is not None and is_gpu(platform())
    text = program.as_text() if counted else None
    told_to_do = None if text is None else launches(text)
    return MemoryReport(
        told.temp_size_in_bytes, told.argument_size_in_bytes, results, told_to_do
    )


def _digest(lowered: jax.stages.Lowered) -> bytes:
    """A name for a program, the platform and the efforts that it is compiled with."""
    # Not all can be read by their name; not every release has each.
    values = jax.config.values
    efforts = [getattr(jax.config, name, values.get(name)) for name in _EFFORTS]
    text = f"{target() or platform()} {efforts}\n{lowered.as_text()}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
