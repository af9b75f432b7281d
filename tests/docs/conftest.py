"""Processes that have loaded what examples need, and run each in a fork."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.docs.warm import Warm
from tests.processor_time import charge

FRAMEWORKS = {
    "jax": "retape.jax",
    "torch": "retape.torch",
    "diffrax": "diffrax",
    "lightning": "lightning",
}
"""What an example may name, and what is loaded before it."""


def needs(text: str) -> tuple[str, ...]:
    """The frameworks that a text names."""
    return tuple(f for f in FRAMEWORKS if re.search(rf"\b{f}\b", text))


Run = Callable[[Callable[[Warm], tuple[bool, str, float]], str], str]


@pytest.fixture(scope="session")
def _started() -> Iterator[dict[tuple[str, ...], Warm]]:
    started: dict[tuple[str, ...], Warm] = {}
    yield started
    for each in started.values():
        each.close()


@pytest.fixture
def run(_started: dict[tuple[str, ...], Warm], request: pytest.FixtureRequest) -> Run:
    """Has a process do a task that needs what a text names; gives what it said."""

    def run(task: Callable[[Warm], tuple[bool, str, float]], text: str) -> str:
        named = needs(text)
        if named not in _started:
            _started[named] = Warm("retape", *(FRAMEWORKS[n] for n in named))
        right, said, seconds = task(_started[named])
        charge(request.config, seconds)
        assert right, said
        return said

    return run
