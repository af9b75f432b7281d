"""A solver in C, in place and with a work array: its gradient in bounded memory.

The state of Burgers' equation is changed in place by `c_solver.c`, which is called by
`ctypes`, many steps at a call. A receiver measures at all times, so the cost is a sum
along the run; the gradient is by the start state and by the viscosity. Nothing in the
C code knows of Retape, and nothing here says how it handles memory.
"""

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import retape

DT, RECEIVER = 1e-4, 7


def compiled(source: Path) -> ctypes.CDLL:
    """The solver as a shared library."""
    place = Path(tempfile.mkdtemp()) / "c_solver.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", place], check=True)
    library = ctypes.CDLL(str(place))
    array, size, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double
    library.advance.argtypes = [array, size, real, real, real] + 2 * [ctypes.c_long]
    library.advance.restype = None
    library.adjoint.argtypes = [array, array, size, real, real, real]
    library.adjoint.restype = real
    return library


class Solver:
    """What `retape.adjoint` asks for. A state is {"u": ..., "nu": ...}."""

    def __init__(self, library: ctypes.CDLL, cells: int, data: np.ndarray) -> None:
        self.library, self.cells, self.data = library, cells, data

    def forward(self, x: dict, k0: int, k1: int) -> dict:
        """Steps k0, ..., k1 - 1; the argument is changed, and returned."""
        u, nu, n = x["u"], x["nu"], self.cells
        self.library.advance(u.ctypes.data, n, nu, DT, 1 / n, k0, k1)
        return x

    def reverse_step(self, x: dict, k: int, g: dict) -> dict:
        """The cotangent before step k; that of `nu` grows with each step."""
        u, gu, n = x["u"], g["u"], self.cells
        of_nu = self.library.adjoint(
            u.ctypes.data, gu.ctypes.data, n, x["nu"], DT, 1 / n
        )
        return {"u": gu, "nu": g["nu"] + of_nu}

    def cost(self, x: dict, k: int) -> float:
        """The misfit at the receiver at time k."""
        return 0.5 * (x["u"][RECEIVER] - self.data[k]) ** 2

    def cost_gradient(self, x: dict, k: int) -> dict:
        """Its cotangent."""
        gu = np.zeros(self.cells)
        gu[RECEIVER] = x["u"][RECEIVER] - self.data[k]
        return {"u": gu, "nu": 0.0}

    def start(self, nu: float) -> dict:
        """The start state."""
        at = np.arange(self.cells) / self.cells
        return {"u": 1 + 0.5 * np.sin(2 * np.pi * at), "nu": nu}


def main() -> None:
    """Check the adjoint, take a gradient and compare it with a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    library = compiled(Path(__file__).with_suffix(".c"))
    solver = Solver(library, options.cells, np.ones(options.steps + 1))

    check = retape.check_adjoint(
        retape.Program(
            lambda x, k: solver.forward(x, k, k + 1),
            solver.reverse_step,
            cost=solver.cost,
            cost_gradient=solver.cost_gradient,
        ),
        solver.start(0.02),
        steps=10,
    )
    print(check)

    def gradient(nu: float) -> retape.Adjoint:
        return retape.adjoint(
            retape.Program(
                None,
                solver.reverse_step,
                many=solver.forward,
                cost=solver.cost,
                cost_gradient=solver.cost_gradient,
            ),
            solver.start(nu),
            steps=options.steps,
            plan=retape.fixed_space(snapshots=10, stage=20),
        )

    found, h = gradient(0.02), 1e-6
    slope = (gradient(0.02 + h).cost - gradient(0.02 - h).cost) / (2 * h)
    of_nu = found.cotangent["nu"]
    print(f"\ncost {found.cost:.6f}, its derivative by nu {of_nu:.6f}")
    print(f"relative to a difference: {abs(of_nu / slope - 1):.1e}")
    print(found.report)
    if not check.ok or not np.isclose(of_nu, slope, rtol=1e-5):
        raise SystemExit("the gradient is wrong")


if __name__ == "__main__":
    main()
