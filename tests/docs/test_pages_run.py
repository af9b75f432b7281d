"""Every page's examples print what it shows: README and documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import Run, needs
from tests.docs.pages import ROOT, RUN, blocks_of

SLOW = {
    "choosing-a-plan.md", "command.md", "driver.md", "jax.md", "layers.md", "native.md",
    "pictures.md", "schedules.md", "stores.md", "gallery/index.md",
    "solvers/gradient-health.md", "solvers/simulators.md", "start/arrays.md",
    "start/jax-simulations.md", "start/jax-training.md", "torch/distributed.md",
    "torch/index.md", "torch/trainers.md",
}  # fmt: skip
"""Pages of the documentation that take more than two processor seconds."""


def program(page: Path) -> str:
    """What is run of a page, as one text."""
    return "".join(b.text for b in blocks_of(page.read_text()) if b.language in RUN)


def programs() -> dict[str, Path]:
    """The pages that have something to run, by name."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(p.relative_to(ROOT)): p for p in pages if program(p)}


def parameters() -> list[Any]:
    return [
        pytest.param(
            page,
            id=name,
            marks=pytest.mark.slow if name.removeprefix("docs/") in SLOW else (),
        )
        for name, page in programs().items()
    ]


@pytest.mark.parametrize("page", parameters())
def test_what_a_page_shows_is_what_its_examples_print(page: Path, run: Run) -> None:
    run(lambda warm: warm.page(page), program(page))


def test_pages_with_and_without_a_framework_are_among_them() -> None:
    pages = programs()
    assert {(), ("retape.jax",), ("retape.torch",)} <= {
        needs(program(p)) for p in pages.values()
    }
    assert {f"docs/{name}" for name in SLOW} <= pages.keys()
