"""Plans as text: what is read, and what is refused by name."""

import pytest

import retape
from retape import PlanError
from tests.plan.seams import SAMPLES, parse_plan

BOTH = {"state", "tape"}
PLANS = [
    ("logarithmic:stage=10", retape.logarithmic(stage=10)),
    ("fixed-space:snapshots=5", retape.fixed_space(snapshots=5)),
    ("fixed_space:5", retape.fixed_space(snapshots=5)),
    ("fixed-time:sweeps=2,stage=1_000", retape.fixed_time(sweeps=2, stage=1000)),
    ("fixed-time: 2, stage=1e3", retape.fixed_time(sweeps=2, stage=1000)),
    ("segments:stage=7", retape.segments(stage=7)),
    ("segments:offload=host", retape.segments(offload="host")),
    ("within:budget=1MB", retape.within("1MB")),
    ("within:6 MB,split=bisection", retape.within(6_000_000, split="bisection")),
    ("within:4e6", retape.within(4_000_000)),
    (
        "logarithmic:split=bisection,stage=3",
        retape.logarithmic(split="bisection", stage=3),
    ),
    (
        "fixed-space:snapshots=3,store=state+tape",
        retape.fixed_space(snapshots=3, store=BOTH),
    ),
    (
        "tiers:memory=4,disk=50 MB,forward=3,tape=2.5",
        retape.tiers(
            memory=4,
            disk="50 MB",
            costs=retape.StepCosts(forward=3, tape=2.5),
        ),
    ),
    (
        "tiers:levels=device/3+host/2e3/1/0.5+disk/50 MB/4/4,stage=2",
        retape.tiers(
            levels=(
                retape.Tier("device", 3),
                retape.Tier("host", 2000, write=1, read=0.5),
                retape.Tier("disk", "50 MB", write=4, read=4),
            ),
            stage=2,
        ),
    ),
    (
        "chain:forward=1+5+1,states=2+9+2,tapes=3+3+3,budget=5",
        retape.chain(forward=[1, 5, 1], states=[2, 9, 2], tapes=[3, 3, 3], budget=5),
    ),
]


@pytest.mark.parametrize(("text", "plan"), PLANS)
def test_plans_are_written_as_text(text, plan):
    assert parse_plan(text) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "oak",
            "`oak` is not a kind of plan. Write one of fixed-space, fixed-ti",
        ),
        ("tiers:levels=device", "`levels=device` is not a tier. Write name/snapshots"),
        ("tiers:levels=a/3/much/1", "`levels=much` is not a number"),
        ("logarithmic:stage=x", "`stage=x` is not a whole number"),
        ("logarithmic:stage=1.5", "`stage=1.5` is not a whole number"),
        ("tiers:memory=1,disk=1,tape=much", "`tape=much` is not a number"),
        ("within:1 MB,stage=3", "`stage=3` is not an option of the plan `within`"),
        ("fixed-space:3,snapshots=4", "`snapshots` is given twice in the plan"),
    ],
)
def test_plans_that_cannot_be_are_refused(text, message):
    with pytest.raises(PlanError, match=message):
        parse_plan(text)


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.text)
def test_the_text_of_a_kind_makes_its_plan(kind):
    assert kind.name == parse_plan(kind.text).name


def test_whole_numbers_are_exact():
    for text, number in [
        ("1e6", 10**6),
        ("12_000", 12_000),
        ("1.25e2", 125),
        ("123456789123456789e3", 123456789123456789000),
    ]:
        assert parse_plan(f"fixed-time:{text}") == retape.fixed_time(sweeps=number)
    for text in ("e3", "1e", "1.5", "1e-3", "1e999999999", "0x10", "nan", "1 MB"):
        with pytest.raises(PlanError, match="is not a whole number"):
            parse_plan(f"fixed-time:{text}")
