"""One table over simulators: what plain reverse mode says, and what a plan takes.

    pip install -r benchmarks/requirements.txt
    python -m benchmarks.solvers.simulators [NAMES]

Each program is written once, with JAX's or the package's own loop. "plain" is the
gradient by `jax.grad`: its temporaries' bytes, or the error. "ours" is the gradient
under a plan: bytes, and its time in units of a forward run, the least of three taken in
turn. "lines" is what a user changes. Gradients are compared with plain ones where there
are any, otherwise with forward mode along one direction; in single precision.

Packages that are not installed are left out by name.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.harness import Table, asked
from benchmarks.jax.candidates import compiled, difference, timed
from benchmarks.solvers import simulator_programs, solver_programs
from benchmarks.solvers.program import Program, quiet

import retape.jax

COLUMNS = ("program", "plain: bytes, time", "ours: MB", "time", "lines", "apart")
PROGRAMS = {
    name: getattr(module, name)
    for module, names in (
        (solver_programs, ("diffrax", "optimistix", "numpyro", "blackjax", "optax")),
        (simulator_programs, ("mjx", "mjx_masked", "jax_cfd", "xlb", "jaxley")),
    )
    for name in names
}


def said(error: Exception) -> str:
    """What plain reverse mode says, in few words."""
    return f"refuses: {' '.join(str(error).split())[:58]}"


def measure(program: Program) -> tuple[Any, ...]:
    """A row of the table."""
    point = program.point
    gradient = program.gradient or retape.jax.grad(program.fun, plan=program.plan)
    ours = compiled(gradient, point)
    made = {"forward": compiled(program.fun, point), "ours": ours}
    found = np.asarray(ours(point), np.float64)
    try:
        made["plain"] = compiled(jax.grad(program.fun), point)
    except Exception as error:  # that is the result
        text, times = said(error), timed(made, (point,), 3)
        # Forward mode: along one direction.
        along = jnp.cos(jnp.arange(point.size, dtype=point.dtype)).reshape(point.shape)
        slope = slope_along(program, along)
        far = abs(np.vdot(found, along) - slope) / abs(slope)
    else:
        times = timed(made, (point,), 3)
        ratio = times["plain"].least / times["forward"].least
        text = f"{made['plain'].nbytes / 1e6:.2f} MB, {ratio:.1f}"
        far = difference(found, made["plain"](point))
    ratio = times["ours"].least / times["forward"].least
    size = ours.nbytes / 1e6
    return program.name, text, size, ratio, program.lines, f"{far:.0e}"


def slope_along(program: Program, along: Any) -> float:
    """A derivative in forward mode."""
    fun = program.forward or program.fun
    slope = jax.jit(lambda x: jax.jvp(fun, (x,), (along,))[1])
    return float(slope(program.point))


def main() -> None:
    """Print the table."""
    given = asked(__doc__, PROGRAMS, {"names": ["optax", "blackjax"]})
    warnings.simplefilter("ignore")
    table = Table(*COLUMNS)
    for name in given.names:
        try:
            with quiet():
                program = PROGRAMS[name]()
        except ImportError as error:
            table.row(name, f"cannot be imported: {error}", None, None, None, None)
            continue
        table.row(*measure(program))


if __name__ == "__main__":
    main()
