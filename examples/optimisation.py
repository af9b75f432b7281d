"""An optimisation by L-BFGS that is killed, in one folder, and ends with the same bits.

Heat flows in a rod with five sources of unknown strength; they are found from the
temperature at the end. Each evaluation is a run of `retape.adjoint` with the same
`DiskStore`: the run of a new iterate follows one that is done, and one that was killed
goes on where it was. The optimiser keeps what it has been told, a line for each
evaluation, so that the next process asks the same questions again.

    python examples/optimisation.py             kills itself three times, and compares
    python examples/optimisation.py run FOLDER  one process
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import retape

CELLS, STEPS, SOURCES = 60, 150, 5
PLACES = np.linspace(0, CELLS - 1, SOURCES).astype(int)
TRUE = np.array([1.0, -0.5, 2.0, 0.3, -1.2])


def simulation(strengths):
    """A step of explicit Euler, and its adjoint, which adds up the gradient."""
    heat = np.zeros(CELLS)
    heat[PLACES] = 0.05 * strengths

    def step(u, k):
        return u + 0.2 * (np.roll(u, 1) - 2 * u + np.roll(u, -1)) + heat - 0.001 * u**3

    def reverse_step(u, k, g):
        w = g["u"]
        flow = 0.2 * (np.roll(w, -1) - 2 * w + np.roll(w, 1))
        before = w + flow - 0.003 * u**2 * w
        return {"u": before, "strengths": g["strengths"] + 0.05 * w[PLACES]}

    return step, reverse_step


def final_state(strengths):
    step, u = simulation(strengths)[0], np.zeros(CELLS)
    for k in range(STEPS):
        u = step(u, k)
    return u


TARGET = final_state(TRUE)


class Misfit:
    """Half the squared distance to the target, and its gradient."""

    def __init__(self, folder, steps_to_live):
        self.folder, self.left = Path(folder), steps_to_live
        self.notes = self.folder / "evaluations.npy"
        self.known = list(np.load(self.notes)) if self.notes.exists() else []
        self.asked = self.resumed = 0

    def __call__(self, strengths):
        self.asked += 1
        if self.asked > len(self.known):
            self.known.append(self.evaluated(strengths))
            part = self.notes.with_suffix(".part.npy")
            np.save(part, self.known)
            part.replace(self.notes)
        misfit, *gradient = self.known[self.asked - 1]
        return misfit, np.array(gradient)

    def evaluated(self, strengths):
        step, reverse_step = simulation(strengths)

        def mortal(u, k):
            self.left -= 1
            if self.left == 0:
                os._exit(9)  # As by a `kill -9`: nothing is tidied up.
            return step(u, k)

        found = retape.adjoint(
            retape.Program(mortal, reverse_step),
            np.zeros(CELLS),
            seed=lambda u: {"u": u - TARGET, "strengths": np.zeros(SOURCES)},
            steps=STEPS,
            plan=retape.fixed_space(snapshots=6, stage=15),
            store=retape.DiskStore(self.folder / "run", every=0),
            key=strengths.tobytes().hex(),
        )
        self.resumed += found.report.resumed
        misfit = 0.5 * float(((found.state - TARGET) ** 2).sum())
        return [misfit, *found.cotangent["strengths"]]


def lbfgs(function, x, iterations=9):
    """The two-loop recursion, with a step that is halved until the value falls."""
    value, gradient = function(x)
    pairs = []
    for _ in range(iterations):
        direction, weights = gradient.copy(), []
        for s, y in reversed(pairs):
            weights.append(s @ direction / (y @ s))
            direction = direction - weights[-1] * y
        if pairs:
            s, y = pairs[-1]
            direction = direction * (s @ y / (y @ y))
        else:
            direction = direction / np.abs(direction).max()
        for (s, y), weight in zip(pairs, reversed(weights), strict=True):
            direction = direction + (weight - y @ direction / (y @ s)) * s
        length = 1.0
        while True:
            further = x - length * direction
            there, slope = function(further)
            if there < value or length < 1e-6:
                break
            length /= 2
        if (slope - gradient) @ (further - x) > 0:
            pairs = [*pairs[-4:], (further - x, slope - gradient)]
        x, value, gradient = further, there, slope
    return x, value


def run(folder, steps_to_live=-1):
    Path(folder).mkdir(exist_ok=True)
    misfit = Misfit(folder, steps_to_live)
    x, value = lbfgs(misfit, np.zeros(SOURCES))
    np.save(Path(folder) / "result.npy", x)
    print(f"misfit {value:.1e} after {misfit.asked} evaluations", end=", ")
    print(f"of which {misfit.resumed} went on from an earlier process: {x.round(3)}")


def main():
    with tempfile.TemporaryDirectory() as place:
        alone, killed = Path(place) / "alone", Path(place) / "killed"
        run(alone)
        for steps_to_live in (700, 900, 1500, -1):
            command = [sys.executable, __file__, "run", str(killed), str(steps_to_live)]
            code = subprocess.run(command, check=False).returncode
            print(f"a process ended with {code}", flush=True)
        same = np.load(alone / "result.npy") == np.load(killed / "result.npy")
        print("the same bits" if same.all() else "OTHER BITS")
        return int(not same.all())


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        sys.exit(main())
