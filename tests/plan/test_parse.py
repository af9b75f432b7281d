"""Plans as text: the call that makes one is read, and all else is refused by name."""

# ruff: noqa: E501 - a line is a plan

import pytest

import retape
from tests.plan.seams import SAMPLES, parse_plan

PLANS = """
logarithmic(stage=10)
fixed_space(snapshots=1_000, split='treeverse')
retape.fixed_time(sweeps=2, stage=1000)
segments(stage=7, offload="host")
within(6_000_000, split='bisection')
within(budget='6 MB')
within(4e6)
fixed_space(snapshots=3, store={'state', 'tape'})
tiers(memory=4, disk='50 MB', costs=StepCosts(forward=3, tape=2.5))
tiers(levels=(Tier('device', 3), retape.Tier('disk', '50 MB', write=4, read=4)), stage=2)
chain(forward=[1, 5, 1], states=(2, 9, 2), tapes=[3, 3, 3], budget=5)
"""


@pytest.mark.parametrize("text", PLANS.strip().splitlines())
def test_plans_are_written_as_their_calls(text):
    assert parse_plan(text) == eval(text, {"retape": retape, **vars(retape), **CALLS})


CALLS = {name: getattr(retape, name) for name in dir(retape)}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.text)
def test_what_a_plan_is_shown_as_is_its_text(sample):
    plan = parse_plan(sample.text)
    assert parse_plan(repr(plan)) == plan and repr(plan) == repr(parse_plan(repr(plan)))
