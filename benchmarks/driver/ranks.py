"""Ranks of an MPI program that are killed, and go on.

    python -m benchmarks.driver.ranks [--ranks 2 4] [--kills 5] [--launcher "mpirun"]

Runs `examples/ring_mpi.py` whole, and then again with a random rank that ends itself at
a random call of the step, until as many have died; then to the end. The gradient must
have the bits of the whole run, and all ranks must have gone on from a record: otherwise
this ends with 1. Needs `mpi4py` and an MPI.
"""

import argparse
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "ring_mpi.py"
LAUNCHER = "mpirun --oversubscribe"
ROOT_MAY = "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"
STEPS = 200


def main() -> None:
    """Print a line for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--launcher", default=LAUNCHER)
    options = parser.parse_args()
    if shutil.which(shlex.split(options.launcher)[0]) is None or not find_spec(
        "mpi4py"
    ):
        print(f"nothing was run: it needs `{options.launcher}` and `mpi4py`")
        return
    wrong = 0
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            wrong += tried(ranks, options.kills, options.launcher, Path(folder))
    sys.exit(wrong > 0)


def tried(ranks: int, kills: int, launcher: str, folder: Path) -> int:
    """The killed runs that gave another gradient, or began anew."""
    drawn = random.Random(ranks)
    run(launcher, ranks, folder / "whole")
    # Each step once, and once or twice more: calls beyond the end kill nobody.
    whole = (folder / "whole" / "gradient.npy").read_bytes()
    wrong = died = 0
    for number in range(kills + 1):
        place = drawn.randrange(ranks), drawn.randrange(STEPS // 4, 2 * STEPS)
        said = run(
            launcher, ranks, folder / "killed", place if number < kills else None
        )
        if not said:
            died += 1
            continue
        # A run that is done is begun anew: the next deaths are those of another one.
        same = (folder / "killed" / "gradient.npy").read_bytes() == whole
        resumed = died == 0 or "False" not in said
        print(
            f"{ranks} ranks, {died} deaths: same bits {same}; {said.strip()}",
            flush=True,
        )
        wrong += not (same and resumed)
        died = 0
        shutil.rmtree(folder / "killed")
    return wrong


def run(
    launcher: str, ranks: int, out: Path, die: tuple[int, int] | None = None
) -> str:
    """What the program prints; nothing if it was killed."""
    command = [*shlex.split(launcher), "-n", str(ranks), sys.executable, str(EXAMPLE)]
    command += ["--out", str(out), "--steps", str(STEPS)]
    command += ["--die", *map(str, die)] if die else []
    # Open MPI refuses to start for root, who runs this in a container.
    may = dict.fromkeys(ROOT_MAY, "1")
    done = subprocess.run(
        command, capture_output=True, text=True, env={**may, **os.environ}
    )
    if done.returncode and die is None:
        raise SystemExit(done.stderr)
    return "" if done.returncode else done.stdout


if __name__ == "__main__":
    main()
