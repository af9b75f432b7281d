"""Layers on meshes of eight virtual devices, with automatic and explicit axes.

The programs run in a process of their own; see `meshes.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.jaxpr.calls.test_shard_map import finish, start

# One process runs all programs, for two minutes.
pytestmark = pytest.mark.slow

NAMES = [
    "checkpoint, alone",
    "checkpoint, sqrt",
    "checkpoint, every_n",
    "checkpoint, selective",
    "checkpoint, within",
    "scan, levels",
    "scan, policy",
    "scan, sqrt",
    "scan, plan",
    "within, inside shard_map",
    "while_loop",
    "store on disk",
    "health",
    "vmap",
    "vmap over rows that are spread",
]
CASES = [f"{name} ({kind})" for kind in ("Auto", "Explicit") for name in NAMES]
LAYOUTS = ["fully sharded", "data parallel", "tensor parallel"]


@pytest.fixture(scope="module")
def found() -> Any:
    return finish(start("meshes.py"))


@pytest.mark.parametrize("case", CASES)
def test_equal_to_plain_jax_on_the_mesh(found: Any, case: str) -> None:
    assert found["compared"][case] < 1e-12


def test_every_mesh_case_is_looked_at(found: Any) -> None:
    assert set(found["compared"]) == set(CASES)
    assert list(found["held"]) == LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_budget_is_kept_on_each_device(found: Any, layout: str) -> None:
    plain, tried = found["held"][layout]["plain"], found["held"][layout]["budgets"]
    kept = [b for b in tried if "taken" in b]
    assert all(b["taken"] <= b["budget"] and b["difference"] < 1e-12 for b in kept)
    refused = [b for b in tried if "least" in b]
    assert len(kept) == 2 and len(refused) == 1
    # Nothing is refused that plain reverse mode meets, and each error names more.
    assert all(b["budget"] < b["least"] <= plain for b in refused)
