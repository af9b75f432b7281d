"""A Fortran solver with its state in COMMON blocks, untouched: snapshots by `fork`.

`hidden_state.f` has no argument that is its state, and no routine that gives it. A
snapshot of it is a forked process that waits. The gradient is compared with a finite
difference, and with the same equations in NumPy, whose state is an argument. Where
there is no gfortran, `hidden_state.c` does the same with static arrays.
"""

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import retape

N, DT = 20_000, 1e-3


def compiled() -> ctypes.CDLL:
    """The solver as a shared library."""
    here, place = Path(__file__), Path(tempfile.mkdtemp()) / "hidden_state.so"
    fortran = shutil.which("gfortran")
    compiler = [fortran, "-std=legacy"] if fortran else ["cc"]
    source = here.with_suffix(".f" if fortran else ".c")
    flags = ["-O2", "-shared", "-fPIC", source, "-o", place, "-lm"]
    subprocess.run([*compiler, *flags], check=True)
    print("the solver is", "Fortran, with COMMON blocks" if fortran else "C")
    library = ctypes.CDLL(str(place))
    library.energy_.restype = ctypes.c_double
    return library


def explicit(steps: int, plan: retape.Plan) -> np.ndarray:
    """The gradient by a step whose state is its argument."""
    at = np.arange(1, N + 1)

    def step(u: np.ndarray, k: int) -> np.ndarray:
        return u + DT * ((np.roll(u, -1) - np.roll(u, 2)) * np.roll(u, 1) - u + 8)

    def reverse_step(u: np.ndarray, k: int, g: np.ndarray) -> np.ndarray:
        left, slope = np.roll(u, 1), np.roll(u, -1) - np.roll(u, 2)
        more = np.roll(left * g, 1) - np.roll(left * g, -2) + np.roll(slope * g, -1)
        return (1 - DT) * g + DT * more

    start = 8 + np.sin(0.01 * at)
    result = retape.adjoint(
        retape.Program(step, reverse_step), start, seed=np.copy, steps=steps, plan=plan
    )
    return result.cotangent


def main() -> None:
    """Take the gradient in three ways."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--snapshots", type=int, default=5)
    options = parser.parse_args()
    library, plan = compiled(), retape.fixed_space(snapshots=options.snapshots)

    def start(shift: float) -> None:
        library.start_(ctypes.byref(ctypes.c_double(shift)))

    def step(x: None, k: int) -> None:
        library.step_()

    def reverse_step(x: None, k: int, g: np.ndarray) -> np.ndarray:
        library.adj_(ctypes.c_void_p(g.ctypes.data))
        return g

    def seed(x: None) -> np.ndarray:
        g = np.empty(N)
        library.energy_(ctypes.c_void_p(g.ctypes.data))
        return g

    start(0.0)
    result = retape.adjoint(
        retape.Program(step, reverse_step, hidden=True),
        None,
        seed=seed,
        steps=options.steps,
        plan=plan,
    )
    print(result.report)

    def energy(shift: float) -> float:
        start(shift)
        for k in range(options.steps):
            step(None, k)
        g = np.empty(N)
        return library.energy_(ctypes.c_void_p(g.ctypes.data))

    h = 1e-3
    slope = (energy(h) - energy(-h)) / (2 * h)
    one, other = result.cotangent, explicit(options.steps, plan)
    print(f"by the first number: {one[0]:.8f}, by a difference {slope:.8f}")
    print(f"the explicit one differs by {abs(one - other).max():.1e} at most")
    predicted, held = plan.predict(options.steps).peak_snapshots, result.report
    # Processes share what none of them writes: the plan's bytes, and some of Python's.
    each, block = held.peak_bytes / held.peak_snapshots, 2 * 8 * N
    print(
        f"{predicted} snapshots predicted and {held.peak_snapshots} held, each of "
        f"{each / block:.2f} times the COMMON block's {block} bytes"
    )
    if not np.isclose(one[0], slope, rtol=1e-5) or not np.allclose(one, other):
        raise SystemExit("the gradient is wrong")
    if predicted != held.peak_snapshots or not block / 2 <= each <= block + 2**20:
        raise SystemExit("the snapshots take other memory than was predicted")


if __name__ == "__main__":
    main()
