"""What `print(report.plan)` says, against what the run did.

The rows are those who decide: rules, plans, a user's schedule, a store, a plan that was
left. What each part says must add up to what was counted while the program ran.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from retape import DiskStore
from retape.torch import estimate, recompute

LAYERS, WIDTH = 24, 64
SAVED = LAYERS * WIDTH * WIDTH * 4


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    )


X = torch.ones(WIDTH, WIDTH)


def within(memory: Any, runs: int = 1, store: Any = None, **options: Any) -> Any:
    def ran(folder: Path) -> Any:
        net, under = chain(), recompute(snapshots=4, stage=6)
        for number in range(runs):
            kept = store and store(folder / str(number))
            under = recompute(memory=memory, store=kept, **options)
            with under:
                loss = net(X).sum()
            loss.backward()
        return under.report

    return ran


def estimated(folder: Path) -> Any:
    net = chain()
    found = estimate(lambda x: net(x).sum(), X)
    return within(None, plan=found)(folder)


def estimated_in_a_store(folder: Path) -> Any:
    net = chain()
    estimate(lambda x: net(x).sum(), X)
    return within(300_008, store=DiskStore)(folder)


def left(folder: Path) -> Any:
    net, under = chain(), recompute(memory=300_004)
    for more in (0, 0, 5):
        under = recompute(memory=300_004)
        with under:
            y = net(X)
            for _ in range(more):
                y = y.tanh()
            loss = y.sum()
        loss.backward()
    return under.report


def by_number(folder: Path) -> Any:
    net = chain()
    with recompute(snapshots=4, stage=6) as under:
        loss = net(X).sum()
    loss.backward()
    return under.report


# Who decides, the state of the plan, what becomes of things, and words of the reason.
WAYS: dict[str, tuple[Any, str, set[str], str]] = {
    "ample": (within("1GB"), "none", {"kept"}, "all of it is kept"),
    "by rules": (within(300_000), "none", {"kept", "run again"}, "Rules 2 to 4"),
    "by rules, and a plan for the way back": (
        within(200_000), "none", {"kept", "run again"}, "Rule 6",
    ),
    "by number": (by_number, "none", {"kept", "run again"}, "4 snapshots"),
    "by a plan": (within(300_000, 2), "followed", {"kept", "run again"}, "least cost"),
    "estimated": (estimated, "followed", {"kept", "run again"}, "an estimate"),
    "estimated, in a store": (
        estimated_in_a_store, "followed", {"kept", "stored"}, "least cost",
    ),
    "left": (left, "left", {"kept", "run again"}, "was left"),
    "in a store": (
        within(300_000, 3, DiskStore), "followed", {"kept", "stored"}, "least cost",
    ),
}  # fmt: skip


@pytest.mark.slow("estimated, in a store")
@pytest.mark.parametrize("way", WAYS)
def test_the_parts_add_up_to_what_was_done(way: str, tmp_path: Path) -> None:
    ran, state, becomes, reason = WAYS[way]
    report = ran(tmp_path)
    plan, parts = report.plan, report.plan.parts
    if (state, plan.state) != ("none", "left"):  # another program's was tried
        assert plan.state == state and reason in plan.why
    assert [0, *(each.stop for each in parts)] == [
        *(each.first for each in parts),
        report.steps,
    ]
    assert sum(each.recomputed for each in parts) == report.recomputed
    assert {each.state for each in parts} >= becomes
    for each in parts:
        assert (each.start is None) == (each.state != "run again")
        assert each.start is None or each.start <= each.first
    # What is saved: the input and the result of each layer but the first and the last.
    assert SAVED <= sum(each.saved_bytes for each in parts) <= 3 * SAVED
    printed = str(plan)
    assert printed.startswith(plan.why) and printed.count("\n") == len(parts) + 1


@pytest.mark.parametrize(("count", "more"), [(24, 0), (25, 1), (60, 36)])
def test_a_long_table_says_how_many_parts_it_leaves_out(
    count: int, more: int, tmp_path: Path
) -> None:
    plan = by_number(tmp_path).plan
    _, *lines = str(replace(plan, parts=plan.parts[:1] * count)).splitlines()
    last = [f"and {more} more parts, in `parts`"] * bool(more)
    assert len(lines) == 1 + 24 + len(last) and lines[25:] == last


def test_a_loop_has_no_table_and_says_why() -> None:
    net = chain()
    with recompute(memory="1GB", mode="loop") as run:
        assert not run.report.plan.parts  # the block has not ended
        net(X).sum()
    assert "mode='loop'" in str(run.report.plan)
