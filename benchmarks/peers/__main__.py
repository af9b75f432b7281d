"""Run another project's own tests over Retape's functions.

    python -m benchmarks.peers SUITE CHECKOUT [arguments of pytest]

CHECKOUT is a checkout of the suite's project at the tag that
`python -m benchmarks.peers` prints beside its name. What fails is listed, with the
reason where it differs by design. The exit code is 0 if nothing else fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from benchmarks.harness import ROOT, Table
from benchmarks.peers.suites import SUITES, Suite


def main() -> None:
    match sys.argv[1:]:
        case [name, checkout, *arguments] if name in SUITES:
            sys.exit(run(name, Path(checkout), arguments))
        case [] | ["--quick"]:
            table = Table("suite", "tag", "files")
            for name, suite in SUITES.items():
                table.row(name, suite.tag, " ".join(suite.files))
        case _:
            sys.exit(__doc__)


def run(name: str, checkout: Path, arguments: list[str]) -> int:
    """Run a suite and print what came of it; 1 if something failed unexpectedly."""
    suite = SUITES[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={file}"]
        command += "-p benchmarks.peers.replace -p no:cacheprovider".split()
        command += ["-o", "addopts=", "--tb=line"]
        command += [*suite.arguments, *suite.files, *arguments]
        paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        there = os.environ | {"RETAPE_PEER": name, "PYTHONPATH": paths}
        subprocess.run(command, cwd=checkout, env=there)
        return report(suite, file)


def report(suite: Suite, file: Path) -> int:
    """Print counts, and each failure with its reason or its message."""
    counts: Counter[str] = Counter()
    rest: list[str] = []
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        failure = case.find("failure")
        failure = case.find("error") if failure is None else failure
        if case.find("skipped") is not None:
            counts["skipped"] += 1
        elif failure is None:
            counts["passed"] += 1
        else:
            test, message = case.get("name", ""), failure.get("message") or ""
            known = (d for t, d in suite.differs.items() if t in test)
            reason = next((d.reason for d in known if d.says in message), "")
            counts["differs by design" if reason else "failed"] += 1
            print(f"{test}: {reason or (message.splitlines() or [''])[0][:160]}")
            rest += [] if reason else [test]
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if rest else 0


if __name__ == "__main__":
    main()
