"""All benchmarks that the index (`README.md`) names, one after the other.

    python -m benchmarks [--quick] [PART OF A NAME ...]

With `--quick` each is run small, to see that it runs: `make bench-runs`, some minutes.
"""

import re
import subprocess
import sys
import time

from benchmarks.harness import ROOT

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


def main(words: list[str]) -> None:
    """Run them; the last line says which failed, and each has its seconds."""
    quick, parts = "--quick" in words, [w for w in words if not w.startswith("--")]
    wanted = [n for n in index() if not parts or any(part in n for part in parts)]
    failed: list[str] = []
    for name in wanted:
        if name in NOT_ON_A_CPU and not quick:
            continue
        print(f"== {name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *["--quick"] * quick]
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(name)
        print(f"== {name} took {time.monotonic() - began:.1f} s", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
