"""One table over simulators: what plain reverse mode says, and what a plan takes.

    pip install -r benchmarks/requirements.txt
    python benchmarks/solvers/simulators.py [NAMES]

Each program is written once, with JAX's or the package's own loop. "plain" is the
gradient by `jax.grad`: its temporaries' bytes, or the error. "ours" is the gradient
under a plan: bytes, and its time in units of a forward run, the least of three taken in
turn. "lines" is what a user changes. Gradients are compared with plain ones where there
are any, otherwise with forward mode along one direction; in single precision.

Packages that are not installed are left out by name.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from program import Function, Program, quiet
from simulator_programs import brax, jax_cfd, jaxley, mjx, mjx_masked, xlb
from solver_programs import blackjax, diffrax, numpyro, optax, optimistix

import retape.jax

PROGRAMS = {
    made.__name__: made
    for made in (
        diffrax,
        optimistix,
        mjx,
        mjx_masked,
        jax_cfd,
        xlb,
        brax,
        jaxley,
        numpyro,
        blackjax,
        optax,
    )
}


def compiled(fun: Function, point: Any) -> tuple[Any, int]:
    """A program, and its temporaries' bytes."""
    made = jax.jit(fun).lower(point).compile()
    return made, made.memory_analysis().temp_size_in_bytes


def least_seconds(programs: list[Any], point: Any, times: int = 3) -> list[float]:
    """The least time of each, taken in turn."""
    best = [float("inf")] * len(programs)
    for _ in range(times):
        for i, program in enumerate(programs):
            began = time.perf_counter()
            jax.block_until_ready(program(point))
            best[i] = min(best[i], time.perf_counter() - began)
    return best


def said(error: Exception) -> str:
    """What plain reverse mode says, in few words."""
    return f"refuses: {' '.join(str(error).split())[:58]}"


def measure(program: Program) -> str:
    """A row of the table."""
    point = program.point
    gradient = program.gradient or retape.jax.grad(program.fun, plan=program.plan)
    forward, _ = compiled(program.fun, point)
    ours, size = compiled(gradient, point)
    found = np.asarray(ours(point), np.float64)
    try:
        plain, plain_size = compiled(jax.grad(program.fun), point)
    except Exception as error:  # that is the result
        text, times = said(error), least_seconds([forward, ours], point)
        # Forward mode: along one direction.
        along = jnp.cos(jnp.arange(point.size, dtype=point.dtype)).reshape(point.shape)
        slope = slope_along(program, along)
        far = abs(np.vdot(found, along) - slope) / abs(slope)
        mine = f"{times[1] / times[0]:.1f}"
    else:
        text = f"{plain_size / 1e6:.2f} MB"
        times = least_seconds([forward, ours, plain], point)
        want = np.asarray(plain(point), np.float64)
        far = np.linalg.norm(found - want) / np.linalg.norm(want)
        text += f", {times[2] / times[0]:.1f}"
        mine = f"{times[1] / times[0]:.1f}"
    row = (program.name, text, f"{size / 1e6:.3f} MB", mine, program.lines)
    return "| " + " | ".join(map(str, row)) + f" | {far:.0e} |"


def slope_along(program: Program, along: Any) -> float:
    """A derivative in forward mode."""
    fun = program.forward or program.fun
    slope = jax.jit(lambda x: jax.jvp(fun, (x,), (along,))[1])
    return float(slope(program.point))


def main(names: list[str]) -> None:
    """Print the table, in Markdown."""
    warnings.simplefilter("ignore")
    print("| program | plain: bytes, time | ours: bytes | time | lines | difference |")
    print("|---|---|---|---|---|---|")
    for name in names or list(PROGRAMS):
        try:
            with quiet():
                program = PROGRAMS[name]()
        except ImportError as error:
            print(f"| {name} | cannot be imported: {error} | | | | |")
            continue
        print(measure(program), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
