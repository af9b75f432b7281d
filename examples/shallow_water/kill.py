"""Kill the run five times with SIGKILL, and compare its bits with an undisturbed one.

python examples/shallow_water/kill.py [--steps 100000] [--kills 5]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = Path(__file__).with_name("run.py")


def main() -> None:
    """Do it, and say whether the bits agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--cells", type=int, default=4000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--memory", default="50 MB")
    options = parser.parse_args()
    passed_on = ["--steps", str(options.steps), "--cells", str(options.cells)]
    passed_on += ["--memory", options.memory, "--quiet"]
    source = random.Random(1)
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        calm = bits(start(os.path.join(place, "calm"), passed_on))
        seconds = time.monotonic() - began
        print(f"undisturbed: {calm} in {seconds:.1f} s", flush=True)
        path = os.path.join(place, "killed")
        kills = 0
        for _ in range(options.kills):
            process = start(path, passed_on)
            try:
                process.wait(timeout=seconds * source.uniform(0.2, 0.3))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                files = len(list(Path(path).glob("step-*.npz")))
                print(f"kill {kills}: {files} snapshots on disk", flush=True)
        killed = bits(start(path, passed_on))
        print(f"killed and resumed: {killed}")
        print("the same bits" if killed == calm else "DIFFERENT BITS")
        print(f"{kills} times killed")
        sys.exit(killed != calm or kills < options.kills)


def start(path: str, passed_on: list[str]) -> "subprocess.Popen[str]":
    """A run in a process of its own."""
    command = [sys.executable, os.fspath(RUN), path, *passed_on]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def bits(process: "subprocess.Popen[str]") -> str:
    """The first line that it prints."""
    out, _ = process.communicate()
    return out.splitlines()[0]


if __name__ == "__main__":
    main()
