"""Processes that have loaded what examples need, and run each in a fork."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.docs.warm import Warm
from tests.processor_time import charge

FRAMEWORKS = {
    "retape.jax": "jax|jaxpr|nnx",
    "retape.torch": "torch|eager",
    "diffrax": "diffrax",
    "lightning": "lightning",
}
"""What is loaded before an example, and the words by which it is known to need it."""


def needs(text: str) -> tuple[str, ...]:
    """What is to be loaded before a text's examples."""
    return tuple(
        f for f, words in FRAMEWORKS.items() if re.search(rf"\b({words})\b", text)
    )


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
            _started[named] = Warm("retape", *named)
        right, said, seconds = task(_started[named])
        charge(request.config, seconds)
        assert right, said
        return said

    return run
