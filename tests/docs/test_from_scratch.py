"""The library that the page builds from nothing is as good as the library's own."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import re
from typing import Any

import pytest

import retape.schedule
from tests.docs.pages import ROOT, blocks_of

PAGE = (ROOT / "docs" / "from-scratch.md").read_text()
CODE = [block.text for block in blocks_of(PAGE) if block.language == "python"]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page defines."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in CODE:
            exec(block, names)
    return names


def test_it_is_as_short_as_it_says() -> None:
    lines = [line.strip() for block in CODE for line in block.splitlines()]
    code = [line for line in lines if line and not line.startswith(("print", '"""'))]
    assert "five steps and 150 lines" in PAGE and len(code) <= 150


def test_its_cuts_take_the_fewest_advances(page: dict[str, Any]) -> None:
    for steps, snapshots in itertools.product(range(1, 40), range(1, 7)):
        advanced = []

        def advance(state: int, count: int, noted: list[int] = advanced) -> int:
            noted.append(count)
            return state + count

        def reverse(state: int, count: int, gradient: int) -> int:
            assert (count, gradient) == (1, state + 1), "stages come from the last on"
            return state

        assert page["binomial"]((advance, reverse), 0, steps, steps, snapshots) == 0
        fewest = retape.schedule.Schedule(steps, snapshots).counts().advances
        assert sum(advanced) == fewest, (steps, snapshots)


@pytest.mark.parametrize("stage", [1, 7, 100])
@pytest.mark.parametrize(
    "text",
    [
        "(* x (sin x))",
        "((lambda (f) (f f 6 x)) "
        "(lambda (f n u) (if (< n 1) u (f f (- n 1) (* u u)))))",
        "((lambda (y z) (- (* y z) (sin y))) (+ x 1) (* x 3))",
    ],
)
def test_it_differentiates_any_program(
    page: dict[str, Any], text: str, stage: int
) -> None:
    start = page["start"](text, x=0.9)
    _, steps = page["resume"](start)
    machine = page["interrupt"], page["reverse_machine"]
    *_, found = page["binomial"](machine, start, steps, [1.0], 5, stage=stage)
    near = (page["resume"](page["start"](text, x=0.9 + h))[0] for h in (1e-6, -1e-6))
    above, below = near
    assert found == pytest.approx((above - below) / 2e-6, rel=1e-5)


def test_the_modules_that_it_names_are_there() -> None:
    named = re.findall(r"`(retape(?:\.\w+)+)`", PAGE.split("## Where it goes on")[1])
    assert len(named) >= 5
    for dotted in named:
        try:
            importlib.import_module(dotted)
        except ModuleNotFoundError:
            parent, _, name = dotted.rpartition(".")
            assert hasattr(importlib.import_module(parent), name), dotted
