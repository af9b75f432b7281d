"""How long each test takes, in processor seconds, and what may not be as long.

`make test` passes `--processor-seconds 60`: a test that takes more, its fixtures and
the processes that it starts included, fails unless it is marked `slow`. The aim is two;
the first test of a worker that needs a framework or eight devices starts them (5, 30).
Processor time is nearly the same on a loaded machine, and what is left of the load is
divided out: before a test fails, a loop of known length is timed beside it.

What a fixture of a whole session takes (a compiled library, say) is nobody's own.
`--processor-times FILE` writes the seconds of every test as JSON.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PACE_SECONDS = 0.05
"""What `_pace` takes on the machine that the limit is meant for, at rest."""

SPENT = pytest.StashKey[float]()
SHARED = pytest.StashKey[float]()
SECONDS = pytest.StashKey[dict[str, float]]()


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(w) for w in who]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def charge(config: pytest.Config, seconds: float) -> None:
    """Count what a process that goes on running took for the test that is running."""
    config.stash[SHARED] -= seconds


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processor time")
    group.addoption(
        "--processor-seconds",
        type=float,
        metavar="SECONDS",
        help="a test that takes more and is not marked slow fails",
    )
    group.addoption(
        "--processor-times",
        type=Path,
        metavar="FILE",
        help="write the processor seconds of every test to FILE, as JSON",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`slow("a", "b")` is meant for the cells of these names: the others lose it."""
    for item in items:
        for mark in [m for m in item.own_markers if m.name == "slow" and m.args]:
            cell = item.name.partition("[")[2].removesuffix("]")
            if cell not in mark.args:
                item.own_markers.remove(mark)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SHARED] = 0.0
    config.stash[SECONDS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    before = spent()
    result = yield
    if fixturedef.scope == "session":
        request.config.stash[SHARED] += spent() - before
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[SPENT] = spent() - item.config.stash[SHARED]
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report: pytest.TestReport = yield
    if call.when == "call":
        own = spent() - item.config.stash[SHARED] - item.stash[SPENT]
        report.user_properties.append(("processor seconds", own))
        limit = item.config.getoption("--processor-seconds")
        if report.passed and limit and not item.get_closest_marker("slow"):
            _hold_to(limit, own, report)
    return report


def _hold_to(limit: float, own: float, report: pytest.TestReport) -> None:
    if own <= limit:
        return
    slowdown = max(1.0, _pace() / PACE_SECONDS)
    if own > limit * slowdown:
        report.outcome = "failed"
        report.longrepr = (
            f"This test took {own:.1f} processor seconds where {limit:g} are allowed "
            f"(this machine is {slowdown:.1f} times as slow as it might be, which is "
            "counted). Make it smaller, or mark it: @pytest.mark.slow."
        )


def _pace() -> float:
    """Processor seconds of a loop that is always the same; the least of three."""
    taken: list[float] = []
    for _ in range(3):
        before = time.process_time()
        total = 0
        for i in range(400_000):
            total += i & 7
        taken.append(time.process_time() - before)
    return min(taken)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, seconds in report.user_properties:
        if name == "processor seconds" and report.when == "call":
            _all[report.nodeid] = round(float(str(seconds)), 3)


_all: dict[str, float] = {}
"""Of this process: with several workers, the one that collects what they report."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--processor-times")
    if file and not hasattr(session.config, "workerinput"):
        file.write_text(json.dumps(_all, indent=0, sort_keys=True))
