"""The composition matrix: every transformation of a checkpointed function, as tested.

Runs the tests and prints a Markdown table of them, one row for each, with its result.
Run: `python benchmarks/jax/composition.py > docs/composition.md` (five minutes).
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import jax
import pytest

TESTS = Path(__file__).parents[2] / "tests" / "engines" / "jaxpr"
FILES = (
    "api/test_composition.py",
    "intake/test_effects.py",
    "calls/test_shard_map.py",
)
HEAD = f"""# What composes with what

Every row is a test: the function's loop has a trip count that nobody knows beforehand,
so that `jax.grad` alone refuses it, and the result must equal what JAX gives for the
same function with a counted loop (1e-9; itself checked against finite differences).
Printed by `python benchmarks/jax/composition.py` under JAX {jax.__version__}.

| | case | result |
|---|---|---|"""


class Rows:
    """A pytest plugin that keeps each test's name and result."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = "equal" if report.passed else report.outcome


def row(test: str, result: str) -> str:
    """`file::test_what_is_said[case]` as a row."""
    name = test.split("::")[-1]
    said, case = re.fullmatch(r"test_([^\[]*)(?:\[(.*)\])?", name).groups()  # pyright: ignore
    return f"| {said.replace('_', ' ')} | {case or ''} | {result} |"


def main() -> int:
    rows = Rows()
    with contextlib.redirect_stdout(io.StringIO()):
        files = [str(TESTS / f) for f in FILES]
        status = pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[rows])
    print(HEAD)
    for test, result in rows.found.items():
        print(row(test, result))
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
