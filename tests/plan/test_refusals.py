"""What cannot be: schedules, plans, tiers and chains, each refused with a reason.

Every line is a call, and words of what it is told.
"""

# ruff: noqa: E501, F401 - a line is a call; calls use what is imported

from math import inf, nan

import pytest

import retape
from retape import BudgetError, PlanError, StepCosts, Tier
from retape.interop import to_checkpoint_schedules
from retape.schedule import (
    Chain,
    Hierarchy,
    Mixed,
    OnlineBinomial,
    OnlineMixed,
    OnlineTiers,
    Schedule,
)
from tests.plan.seams import parse_plan

REFUSED = r"""
Schedule(-1, 3) -> `length=-1` is not valid: it counts the steps
Schedule(3, 0) -> `snapshots=0` is not valid: .* at least 1
Schedule(3, 1, 0) -> `stage=0` is not valid: .* at least 1
Schedule(3.0, 1) -> `length=3.0` is not an integer
Chain([1], [1, 2], [3], 5) -> `forward` has 1 entries, `states` 2
Chain([1], [1], [-3], 5) -> hold a negative number
Chain([1, inf], [1, 1], [1, 1], 5) -> a cost that is not finite
Chain([1, nan], [1, 1], [1, 1], 5) -> a cost that is not finite
Chain("ab", [1, 1], [1, 1], 6) -> are not valid: pass three sequences
Chain([1, 2], [1.5, 1], [1, 1], 6) -> are not valid: pass three sequences
Chain([None, 1], [1, 1], [1, 1], 6) -> are not valid: pass three sequences
retape.chain(forward=1, states=[1], tapes=[1], budget=6) -> are not valid: pass three sequences with one
Chain([1], [1], [1], 5, units=0) -> `units=0` is not valid: it counts the parts
Chain([1] * 3, [2] * 3, [3] * 3, 4) -> least possible is 5 bytes
Chain([1] * 3, [2] * 3, [3] * 3, 5, units=2) -> It would do with more than `units=2`
Chain([1] * 900, [2] * 900, [3] * 900, 999) -> too large for the dyn
Hierarchy(5, ()) -> tiers named .. are not valid: pass at least one
Hierarchy(5, (Tier("t0", 1),) * 2) -> tiers named .'t0', 't0'. are not
Hierarchy(5, (Tier("t0", 0), Tier("t1", 0))) -> the start state needs a slot
Hierarchy(5, ("disk",)) -> `'disk'` is not a tier. Pass `retape.Tier
Hierarchy(-5, (Tier("t0", 1),)) -> `length=-5` is not valid
Hierarchy(50, (Tier("a", 2, 1e308, 1e308),)).cost() -> cost more than numbers of floating
Hierarchy(40_000, (Tier("a", 2, 1e308, 1e308), Tier("b", 2, 1e308, 1e308))).cost() -> cost more than numbers of floating
Tier("", 1) -> `name=''` cannot be the name of a tier
Tier("a/b", 1) -> `name='a/b'` cannot be the name of a tier
Tier("a", -1) -> `snapshots=-1` of the tier 'a' is not valid
Tier("a", 2.5) -> `snapshots=2.5` of the tier 'a' is not valid
Tier("a", "many") -> `snapshots='many'` is not an amount
Tier("a", 1, write=-1) -> `write=-1` cannot be a cost
Tier("a", 1, read=inf) -> `read=inf` cannot be a cost
Tier("a", 1, read=10**400) -> cannot be a cost
Mixed(-1, 3) -> `length=-1` is not valid
Mixed(5, 3, stage=0) -> `stage=0` is not valid
Mixed(5, 3, 0, 1) -> `state=0` is not valid
OnlineBinomial(3, stage=0) -> `stage=0` is not valid
OnlineMixed(5, stage=0) -> `stage=0` is not valid
OnlineTiers((Tier("a", 1), Tier("b", 1)), stage=0) -> `stage=0` is not valid
Mixed(5, 2, 3, 1) -> The least possible is 3\b
Mixed(3, 1, 3, 1) -> The least possible is 2\b
OnlineBinomial(0) -> `snapshots=0` is not valid: it counts the snap
OnlineMixed(budget=4, state=5) -> least possible is 5 \(5 B
OnlineTiers([Tier("memory", 0), Tier("disk", 0)]) -> a near one and a far one.*Pass two
OnlineTiers([Tier("memory", 3)]) -> a near one and a far one.*Pass two
OnlineTiers([Tier("memory", 1), Tier("disk", 1), Tier("x", 1)]) -> a near one and a far one.*Pass two
to_checkpoint_schedules(Schedule(0, 1), 0) -> `length=0` is not valid
to_checkpoint_schedules(Hierarchy(9, [Tier("device", 2), Tier("host", 3)]), 9) -> a tier 'device', and `checkpoint_schedules` knows RAM and DISK
to_checkpoint_schedules(OnlineBinomial(3), 5) -> told to an online schedule by `finalize`
to_checkpoint_schedules(OnlineBinomial(3, stage=2)) -> Leave `stage` out
to_checkpoint_schedules(Schedule(4, 2)) -> Pass its number of steps; an online
to_checkpoint_schedules(Schedule(4, 2), 4, drops=True) -> Leave it out
retape.Plan(sweeps=1.5) -> `sweeps=1.5` is not an integer
retape.fixed_space(snapshots=True) -> `snapshots=True` is not an integer
retape.fixed_space(snapshots=3, split="treeverse").predict(10**30) -> different intervals
retape.logarithmic().resolve(-1) -> `n=-1` is not valid
retape.logarithmic().resolve(5, 3) -> follows from both or from nei
retape.logarithmic().resolve(5, 3, -1) -> `tape_bytes=-1` is not valid
retape.segments().resolve(None) -> needs the number of steps beforehand
retape.fixed_time(sweeps=2).resolve(None) -> needs the number of steps beforehand
retape.within(29).resolve(100, 10, 20) -> The least possible is 30 bytes
retape.within(19).resolve(1, 10, 20) -> The least possible is 20 bytes
retape.within(29).resolve(None, 10, 20) -> The least possible is 30 bytes
retape.within(1024).resolve(None, 1, 1024) -> 1025 bytes .1\.1 KiB
retape.fixed_space(snapshots=2, store={"tape"}) -> `store={'tape'}` is not valid: slots hold states
retape.fixed_space(snapshots=2, store="state") -> is not valid: slots hold states.*Pass {"state"}
retape.fixed_space(snapshots=2, store=BOTH, split="bisection") -> `split='bisection'` does not go with tapes in slots
retape.fixed_space(snapshots=2, store=BOTH, offload="host") -> does not go with tapes in slots
retape.fixed_space(snapshots=4, store=BOTH).resolve(10) -> `fixed_space.store=.*` cannot be expressed as a stage
retape.tiers(memory=-1, disk=2) -> `snapshots=-1` of the tier 'memory' is not
retape.tiers(memory=1, disk="x") -> `snapshots='x'` is not an amount of
retape.tiers(memory=0, disk=0) -> the start state needs a slot on one
retape.tiers(memory=2, disk=3).predict(10**400) -> `n` has more than 300 digits
retape.tiers(memory="9 kB", disk="2 kB").predict(9, 8000, 8000) -> hold no snapshot, which takes 8000 bytes .7.9 KiB.. The least possible
retape.tiers(memory="1 kB", disk="2 kB").predict(9, 800, 8000) -> `memory='1 kB'` does not hold the tape of a stage, which takes 8000 byt
retape.tiers(levels=()) -> pass at least one
retape.tiers(levels=(Tier("a", 0),)) -> the start state needs a slot
retape.tiers(levels=(Tier("a", 2), Tier("a", 2))) -> each with a name of its own
retape.tiers(levels=(Tier("a", 2), Tier("b", 3), Tier("c", 3))).resolve(None) -> needs the number of steps beforehand
retape.tiers(levels=(Tier("a", 2), Tier("b", 3))).predict(10**400) -> `n` has more than 300 digits
retape.tiers(levels=(Tier("a", "30 B"), Tier("b", "9 B"))).predict(9, 20, 20) -> hold no snapshot, which takes 20 bytes
retape.chain(forward=[1] * 3, states=[2] * 3, tapes=[3] * 3, budget=9).predict(4) -> this chain has 3 steps and the run has
retape.chain(forward=[1] * 3, states=[2] * 3, tapes=[3] * 3, budget=4).predict(3) -> least possible is 5 b
parse_plan("oak") -> `oak` is not a plan. Write the call of one of fixed_space, fixed_time
parse_plan("logarithmic") -> `logarithmic` is not a plan
parse_plan("") -> `` is not a plan
parse_plan("within('1 MB'") -> is not a plan
parse_plan("within(input())") -> is not a plan
parse_plan("logarithmic().with_stage(3)") -> is not a plan
parse_plan("Tier('disk', 3)") -> is not a plan
parse_plan("fixed_space(3)") -> `fixed_space.3.`: fixed_space.. takes 0 positional arguments
parse_plan("tiers(levels=[Tier('device')])") -> missing 1 required positional argument
parse_plan("fixed_time(sweeps=1.5)") -> `sweeps=1.5` is not an integer
parse_plan("tiers(memory=1, disk=1, costs=StepCosts(tape='much'))") -> `tape='much'` cannot be a cost
parse_plan("within('1 MB', stage=3)") -> got an unexpected keyword argument 'stage'
parse_plan("fixed_space(snapshots=3, snapshots=4)") -> is not a plan
"""
BOTH = {"state", "tape"}
LEAST = (
    "least possible is",
    "hold no snapshot",
    "does not hold the tape",
    "1025 bytes",
)


@pytest.mark.parametrize(
    ("call", "words"), [line.split(" -> ") for line in REFUSED.strip().splitlines()]
)
def test_what_cannot_be_is_refused_with_a_reason(call, words):
    small = any(each in words for each in LEAST)
    with pytest.raises(BudgetError if small else PlanError, match=words):
        eval(call, dict(globals()))


@pytest.mark.parametrize("wrong", [10.0, "10", None, True, [1], nan])
@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: Schedule(wrong, 3),
        lambda wrong: Hierarchy(wrong, [Tier("a", 3)]),
        lambda wrong: Mixed(10, wrong),
        lambda wrong: OnlineBinomial(wrong),
        lambda wrong: retape.fixed_space(snapshots=3).predict(wrong),
        lambda wrong: retape.tiers(memory=1, disk=1).predict(wrong),
    ],
)
def test_what_is_no_count_is_named(call, wrong):
    with pytest.raises(PlanError, match="is not an integer: counts of steps, sta"):
        call(wrong)


@pytest.mark.parametrize("wrong", [10.0, "10", 2.5, True, [1], nan])
def test_what_is_no_number_of_bytes_is_named(wrong):
    with pytest.raises(PlanError, match="`tape_bytes=.*` is not an integer"):
        retape.fixed_space(snapshots=3).predict(10, 8, wrong)


@pytest.mark.parametrize("wrong", ["a", None, [1.0], nan, -1, inf])
def test_what_is_no_cost_is_named(wrong):
    with pytest.raises(PlanError, match="`read=.*` cannot be a cost. Pass a num"):
        Tier("disk", 3, read=wrong)
    with pytest.raises(PlanError, match="`tape=.*` cannot be a cost. Pass a number"):
        StepCosts(tape=wrong)
