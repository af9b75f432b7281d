"""Cost model: run time of a candidate, relative to a gradient that stores everything.

Advances are counted: by the schedule if the number of steps is known, else by how long
a run may be of which each step is advanced once. But a tape costs time, too. What does
not stay in the cache is written to memory and read back, and a byte takes as long as
some forty operations, on processors and on accelerators alike (their *balance*). For a
layer of a small network that is more than running it once again:

    width 128:  200 million operations, 7 MB of residuals    3 times as long to store
    width 2048: operations grow with its square              a fifth
"""

from __future__ import annotations

from dataclasses import replace

from retape.engines.jaxpr.analysis._flops import flops
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.nest._both_branches import kernel_price
from retape.engines.jaxpr.nest._chunk_sizes import KERNEL
from retape.engines.jaxpr.sweep._equal_parts import equal_parts
from retape.schedule import Schedule

CACHE = 1 << 24
"""Bytes of a tape that costs no time."""
_BALANCE = 40
"""Operations in the time that a byte takes to be moved."""
_TURN, _CHUNK = 24, 18
"""Kernels of a turn and of a chunk to advance besides its steps: 18 and 12 (XLA:GPU for
an H100, November 2026), and a wait each, in the time of five."""
_PART = 10
"""Kernels of a stage that has a snapshot, besides its steps (XLA:GPU, likewise)."""
_FEW_OPERATIONS = 256
"""Operations of a step that costs less than deciding about snapshots. A gradient of
40,000 steps takes 1.17, 0.97 and 1.03 times as long if they are sines of 1, 16 and 64
numbers and counted first, of 1,000 numbers up to 1.5; a bare loop compiles in two
thirds of the time (jaxlib 0.10.2, 2 cores)."""
_RUN = 64
"""Steps that a run of unknown length is thought to have at least."""


def relative_cost(compiled: Compiled, settings: Settings, whole: Compiled) -> float:
    """Mean number of times a step is advanced, and the traffic of its tape.

    Both in the unit of one advance.

    Args:
        compiled: The program, its blocks cut or not.
        settings: The sizes.
        whole: The program uncut, in whose steps a run of unknown length is measured.
    """
    n, d, alpha = compiled.program.length, settings.snapshots, settings.stage
    stored = storing_cost(compiled, settings)
    if n is not None:
        return Schedule(n, d, alpha).counts().advances / n + stored
    blocks = len(compiled.code) / len(whole.code)
    return _RUN * blocks / (d * alpha) + stored


def device_cost(compiled: Compiled, settings: Settings, whole: Compiled) -> float:
    """The same for the device's form, whose turns and chunks are kernels, too.

    Where nothing but its inputs is taped a step is run once more.
    """
    n = compiled.program.length or _RUN
    again = any(t.thin for t in compiled.taped.values())
    kernels = 0.0 if settings.direct else _taped_values(compiled)
    stages = -(-n // settings.stage)
    if parts := equal_parts(compiled, replace(settings, device=True)):
        advanced = parts.full * parts.steps / n + storing_cost(compiled, settings)
        kernels += stages * _PART / n
    else:
        advanced = relative_cost(compiled, settings, whole)
        chunks = stages + advanced * n / settings.stage
        kernels += (stages * _TURN + chunks * _CHUNK) / n
    return advanced + again + kernels / step_kernels(compiled)


def _taped_values(compiled: Compiled) -> int:
    """Values that a step tapes, most of any block; each is a kernel, about.

    Of a gradient of BPTT, 16.2 kernels a step with four values and 14.1 with one that
    also runs the step again (XLA:GPU for an H100, November 2026).
    """
    return max(sum(taped.pushes().values()) for taped in compiled.taped.values())


def step_kernels(compiled: Compiled) -> float:
    """Kernels of a step in a loop, about; a mean of its blocks."""
    looped = [c for c in compiled.code.values() if not c.once]
    prices = [kernel_price(c.jaxpr.jaxpr) for c in looped or compiled.code.values()]
    return max(1.0, sum(prices) / len(prices) / KERNEL)


def is_counted_first(compiled: Compiled) -> bool:
    """Tell whether steps cost so little that they are counted before they are swept.

    Otherwise a run of unknown length places its snapshots as it goes on. What a program
    says to the host it is not to say once more.
    """
    looped = [c.jaxpr.jaxpr for c in compiled.code.values() if not c.once]
    most = max((sum(map(flops, j.eqns)) for j in looped), default=0)
    return most <= _FEW_OPERATIONS and not any(j.effects for j in looped)


def storing_cost(compiled: Compiled, settings: Settings) -> float:
    """The time that a step's tape takes, in advances of that step."""
    if settings.direct or compiled.tape_bytes(settings.stage) <= CACHE:
        return 0.0
    taped = list(compiled.taped.values())
    looped = [t for t in taped if not t.code.once] or taped
    moved = sum(2 * nbytes(kind) * n for t in looped for kind, n in t.pushes().items())
    return moved / max(1.0, sum(map(_work, looped)))


def _work(block: TapedCode) -> float:
    """How long a block takes, in bytes that are moved in that time."""
    jaxpr = block.code.jaxpr
    moved = sum(map(nbytes, (*jaxpr.in_avals, *jaxpr.out_avals)))
    return moved + sum(map(flops, jaxpr.eqns)) / _BALANCE
