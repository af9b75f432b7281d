"""All benchmarks that the index (`README.md`) names, one after the other.

    python -m benchmarks [--quick] [torch layers.run ...]

With `--quick` each is run small, to see that it runs: twenty minutes. A word before
the point of a name stands for all of these.
"""

import re
import subprocess
import sys
import time

from benchmarks.harness import ROOT, asked

NOT_ON_A_CPU = ("accelerators.run", "accelerators.described", "accelerators.foreseen")
"""At full size they take a CPU hours; `make bench-accelerator`."""


def index() -> list[str]:
    """The modules of the index: a row begins with their names.

    Examples:
        >>> "quick" in index()
        True
    """
    text = (ROOT / "benchmarks" / "README.md").read_text()
    return re.findall(r"^\| `([a-z_.]+)` \|", text, re.M)


def main() -> None:
    """Run them; the last line says which failed, and each has its seconds."""
    known, failed = index(), list[str]()
    given = asked(__doc__, dict.fromkeys([*known, *(n.split(".")[0] for n in known)]))
    for name in known:
        if name not in given.names and name.split(".")[0] not in given.names:
            continue
        if name in NOT_ON_A_CPU and not given.quick:
            continue
        print(f"== {name}", flush=True)
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            f"benchmarks.{name}",
            *["--quick"] * given.quick,
        ]
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(name)
        print(f"== {name} took {time.monotonic() - began:.1f} s", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
