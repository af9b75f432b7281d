"""Plans as text: what is read, and what is refused by name."""

# ruff: noqa: E501 - a line is a plan

import pytest

import retape
from tests.plan.seams import parse_plan

PLANS = """
logarithmic:stage=10 -> retape.logarithmic(stage=10)
fixed-space:snapshots=5 -> retape.fixed_space(snapshots=5)
fixed_space:5 -> retape.fixed_space(snapshots=5)
fixed-time:sweeps=2,stage=1_000 -> retape.fixed_time(sweeps=2, stage=1000)
fixed-time: 2, stage=1e3 -> retape.fixed_time(sweeps=2, stage=1000)
segments:stage=7 -> retape.segments(stage=7)
segments:offload=host -> retape.segments(offload="host")
within:budget=1MB -> retape.within("1MB")
within:6 MB,split=bisection -> retape.within(6_000_000, split="bisection")
within:4e6 -> retape.within(4_000_000)
logarithmic:split=bisection,stage=3 -> retape.logarithmic(split="bisection", stage=3)
fixed-space:snapshots=3,store=state+tape -> retape.fixed_space(snapshots=3, store={"state", "tape"})
tiers:memory=4,disk=50 MB,forward=3,tape=2.5 -> retape.tiers(memory=4, disk="50 MB", costs=retape.StepCosts(forward=3, tape=2.5))
tiers:levels=device/3+host/2e3/1/0.5,stage=2 -> retape.tiers(levels=(retape.Tier("device", 3), retape.Tier("host", 2000, 1, 0.5)), stage=2)
tiers:levels=device/3+disk/50 MB/4/4 -> retape.tiers(levels=(retape.Tier("device", 3), retape.Tier("disk", "50 MB", 4, 4)))
chain:forward=1+5+1,states=2+9+2,tapes=3+3+3,budget=5 -> retape.chain(forward=[1, 5, 1], states=[2, 9, 2], tapes=[3, 3, 3], budget=5)
"""
"""A text, and the call that makes the same plan."""


@pytest.mark.parametrize("row", PLANS.strip().splitlines())
def test_plans_are_written_as_text(row):
    text, call = row.split(" -> ")
    assert parse_plan(text) == eval(call, {"retape": retape})


def test_whole_numbers_are_exact():
    for text, number in [
        ("1e6", 10**6),
        ("12_000", 12_000),
        ("1.25e2", 125),
        ("123456789123456789e3", 123456789123456789000),
    ]:
        assert parse_plan(f"fixed-time:{text}") == retape.fixed_time(sweeps=number)
