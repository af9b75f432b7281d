"""A solver in Fortran, by f2py or ctypes: many steps at a call, costs, parameters.

The state of Burgers' equation is changed in place by `fortran_solver.f90`, many steps
at a call. A receiver measures at all times, so the cost is a sum along the run. The
gradient is by the start state, the viscosity and a force at every cell, of which the
Fortran code adds up its part at each step.

f2py needs `gfortran`, `meson` and `ninja`; ctypes `gfortran` alone. Without `gfortran`
the same routines in C stand in. The first line says what was taken.
"""

import argparse
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import retape

DT, RECEIVER, HERE = 1e-4, 7, Path(__file__)


def by_f2py() -> object:
    """The routines as a module that f2py builds."""
    place = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "numpy.f2py", "--backend", "meson", "-c"]
    command += [str(HERE.with_suffix(".f90")), "-m", "fortran_solver"]
    # Where meson and ninja are installed beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    (built,) = place.glob("fortran_solver*.so")
    spec = importlib.util.spec_from_file_location("fortran_solver", built)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ByReference:
    """The same routines by ctypes: Fortran takes the addresses of all arguments."""

    def __init__(self, compiler: str, source: Path) -> None:
        place = Path(tempfile.mkdtemp()) / "fortran_solver.so"
        flags = ["-O2", "-shared", "-fPIC", source, "-o", place]
        subprocess.run([compiler, *flags], check=True)
        self.library = ctypes.CDLL(str(place))

    def advance(self, u, nu, f, dt, dx, k0, k1):
        self._call("advance_", u, len(u), nu, f, dt, dx, k0, k1)

    def adjoint(self, u, g, gf, gnu, nu, dt, dx):
        self._call("adjoint_", u, g, gf, gnu, len(u), nu, dt, dx)

    def _call(self, name, *given):
        kinds = {int: ctypes.c_int, float: ctypes.c_double}
        passed = [
            ctypes.c_void_p(each.ctypes.data)
            if isinstance(each, np.ndarray)
            else ctypes.byref(kinds[type(each)](each))
            for each in given
        ]
        getattr(self.library, name)(*passed)


def routines(by: str) -> object:
    """`advance` and `adjoint`, in the way that is asked for and can be had."""
    fortran = shutil.which("gfortran")
    meson = all(map(importlib.util.find_spec, ("mesonbuild", "ninja")))
    if by == "f2py" and not (fortran and meson):
        raise SystemExit("f2py needs gfortran, and the packages meson and ninja")
    if fortran and (by == "f2py" or (by == "any" and meson)):
        print("Fortran, by f2py")
        return by_f2py()
    if fortran:
        print("Fortran, by ctypes")
        return ByReference(fortran, HERE.with_suffix(".f90"))
    print("C in the place of Fortran, by ctypes: there is no gfortran")
    return ByReference("cc", HERE.with_suffix(".c"))


class Solver:
    """What `retape.adjoint` asks for. A state is {"u": ..., "nu": ..., "f": ...}."""

    def __init__(self, routines, cells: int) -> None:
        self.routines, self.cells, self.calls = routines, cells, 0

    def forward(self, x: dict, k0: int, k1: int) -> dict:
        """Steps k0, ..., k1 - 1; the argument is changed, and returned."""
        dx = 1 / self.cells
        self.calls += 1
        self.routines.advance(x["u"], float(x["nu"][0]), x["f"], DT, dx, k0, k1)
        return x

    def reverse_step(self, x: dict, k: int, g: dict) -> dict:
        """The cotangent before step k; those of the parameters grow with each step."""
        dx = 1 / self.cells
        parts = g["u"], g["f"], g["nu"]
        self.routines.adjoint(x["u"], *parts, float(x["nu"][0]), DT, dx)
        return g

    def cost(self, x: dict, k: int) -> float:
        """The misfit at the receiver at time k."""
        return 0.5 * float(x["u"][RECEIVER] - 1) ** 2

    def cost_gradient(self, x: dict, k: int) -> dict:
        """Its cotangent."""
        gu = np.zeros(self.cells)
        gu[RECEIVER] = x["u"][RECEIVER] - 1
        return {"u": gu, "nu": np.zeros(1), "f": np.zeros(self.cells)}

    def start(self, nu: float, f: np.ndarray) -> dict:
        """The start state, with the parameters that every step reads."""
        at = np.arange(self.cells) / self.cells
        return {"u": 1 + 0.5 * np.sin(2 * np.pi * at), "nu": np.array([nu]), "f": f}

    def seed(self, x: dict) -> dict:
        """The energy at the end counts, too, so that steps run many at a call."""
        return {"u": x["u"].copy(), "nu": np.zeros(1), "f": np.zeros(self.cells)}


def main() -> None:
    """Take a gradient and compare it with differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--by", choices=["any", "f2py", "ctypes"], default="any")
    options = parser.parse_args()
    solver, n = Solver(routines(options.by), options.cells), options.steps
    force = 0.1 * np.cos(np.arange(options.cells))
    plan = retape.fixed_space(snapshots=10, stage=20)

    def gradient(nu: float, f: np.ndarray) -> retape.Adjoint:
        return retape.adjoint(
            retape.Program(
                None,
                solver.reverse_step,
                many=solver.forward,
                cost=solver.cost,
                cost_gradient=solver.cost_gradient,
            ),
            solver.start(nu, f),
            seed=solver.seed,
            steps=n,
            plan=plan,
        )

    def total(nu: float, f: np.ndarray) -> float:
        found = gradient(nu, f)
        return found.cost + 0.5 * float(found.state["u"] @ found.state["u"])

    found, h = gradient(0.02, force), 1e-5
    ahead = np.zeros(options.cells)
    ahead[3] = h
    differences = {
        "nu": (total(0.02 + h, force) - total(0.02 - h, force)) / (2 * h),
        "f[3]": (total(0.02, force + ahead) - total(0.02, force - ahead)) / (2 * h),
    }
    gradients = {
        "nu": float(found.cotangent["nu"][0]),
        "f[3]": found.cotangent["f"][3],
    }
    print(found.report)
    for name, slope in differences.items():
        off = abs(gradients[name] / slope - 1)
        print(f"by {name}: {gradients[name]:.8f}, off the difference by {off:.1e}")
        if off > 1e-6:
            raise SystemExit("the gradient is wrong")
    report = found.report
    print(f"{report.advances} advances and {report.taped} taped steps")


if __name__ == "__main__":
    main()
