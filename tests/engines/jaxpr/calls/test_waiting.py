"""No program waits for ever: devices with loops of their own length, and collectives.

The programs run in a process of their own, which is given up after ten minutes; see
`waiting.py`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.engines.jaxpr.calls.test_shard_map import finish, start

CASES = ["twice, inside (Auto)", "lanes (Auto)", "untold (Auto)", "among (Explicit)"]


@pytest.fixture(scope="module")
def ended() -> Any:
    return finish(start("waiting.py"))


@pytest.mark.slow("twice, inside (Auto)", "lanes (Auto)")
@pytest.mark.parametrize("case", CASES)
def test_it_ends_and_equals_plain_jax(ended: Any, case: str) -> None:
    assert ended["found"][case] < 1e-12


def test_every_case_ended(ended: Any) -> None:
    assert sorted(ended["found"]) == sorted(CASES)


def test_what_would_wait_is_refused_before_it_starts(ended: Any) -> None:
    said = (
        r"^The collective `psum\w*` at .*waiting.py:\d+.* along the mesh axis `d` take "
        r"each its own number of steps.*`jax.lax.pmax`.*pass `retape.fixed_space`"
    )
    assert re.match(said, ended["refused"]["budget"])
