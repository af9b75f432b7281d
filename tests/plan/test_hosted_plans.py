"""Plans over tiers, of chains and with tapes in slots: predicted, run, refused."""

from math import inf

import pytest

import retape
from retape import PlanError, Tier
from retape.driver import ToyMachine, run
from retape.schedule import Advance, Drop, Reverse, Store, Tape, replay
from tests.driver.toys import Untaped, by_itself
from tests.schedule.numbers import counts_of

BOTH = {"state", "tape"}


def chain_of(n, budget):
    return retape.chain(
        forward=[1 + k % 3 for k in range(n)],
        states=[2 + k % 2 for k in range(n)],
        tapes=[3 + k % 4 for k in range(n)],
        budget=budget,
    )


PLANS = [
    retape.fixed_space(snapshots=1, store=BOTH),
    retape.fixed_space(snapshots=4, store=BOTH),
    retape.fixed_space(snapshots=3, stage=5, store=BOTH),
    retape.tiers(memory=2, disk=3),
    retape.tiers(memory="30 B", disk="1 kB"),
    retape.tiers(memory=0, disk=3, stage=2),
    retape.tiers(levels=(Tier("memory", 3, write=0.5), Tier("disk", 0))),
]
TIERS = (
    Tier("device", 2),
    Tier("host", 3, 1, 1),
    Tier("disk", 4, 4, 4),
    Tier("remote", 6, 9, 9),
)
LEVELS = [
    retape.tiers(levels=TIERS, stage=1),
    retape.tiers(levels=TIERS[:3], stage=2),
    retape.tiers(levels=(TIERS[0], Tier("host", 0), TIERS[2])),
    retape.tiers(levels=(Tier("device", "40 B"), Tier("disk", "1 kB", 3, 3))),
    retape.tiers(levels=TIERS[:1]),
]
STAGED = [
    retape.fixed_space(snapshots=1),
    retape.fixed_space(snapshots=4),
    retape.fixed_space(snapshots=3, stage=5),
    retape.fixed_space(snapshots=4, split="bisection"),
    retape.fixed_space(snapshots=4, split="treeverse"),
    retape.fixed_time(sweeps=1),
    retape.fixed_time(sweeps=3),
    retape.fixed_time(sweeps=3, stage=4, split="treeverse"),
    retape.fixed_time(sweeps=3, split="bisection"),
    retape.logarithmic(),
    retape.logarithmic(stage=3),
    retape.logarithmic(split="bisection"),
    retape.segments(),
    retape.segments(stage=7),
    retape.within(600),
    retape.within(600, split="treeverse"),
]


def walked(actions, w, r):
    """The most bytes on each tier at once, slots only; the longest tape."""
    held, most, longest = {}, {}, 0
    for action in actions:
        match action:
            case Store(_, slot, tier):
                held.setdefault(tier, {})[slot] = w
            case Tape(start, stop, slot, tier):
                held.setdefault(tier, {})[slot] = (stop - start) * r
            case Drop(_, slot, tier):
                del held[tier][slot]
            case Reverse(start, stop):
                longest = max(longest, stop - start)
        for tier, slots in held.items():
            most[tier] = max(most.get(tier, 0), sum(slots.values()))
    return most, longest * r


@pytest.mark.parametrize("plan", PLANS + STAGED + LEVELS, ids=repr)
def test_a_prediction_is_what_a_replay_counts(plan):
    for n in (0, 1, 2, 3, 10, 29, 64, 101, 260):
        for w, r in [(10, 10), (7, 30), (40, 3)]:
            if plan in (PLANS[4], LEVELS[3]) and w == 40:
                w = 30
            prediction = plan.predict(n, w, r)
            schedule = plan.schedule(n, w, r)
            counts = replay(schedule, n, stage=prediction.alpha)
            assert counts == counts_of(prediction)
            most, tape = walked(schedule, w, r)
            near = most.get(plan.levels[0].name if plan in LEVELS else "memory", 0)
            if prediction.kept_tapes:
                # The longest tape may be in a slot, and is then counted there only.
                assert near + tape <= prediction.peak_bytes
                assert (
                    prediction.peak_bytes <= plan.snapshots * w + prediction.alpha * r
                )
            else:
                assert prediction.peak_bytes == near + tape
            assert (prediction.disk_bytes or 0) == most.get("disk", 0)
            for name, use in (prediction.tiers or {}).items():
                assert use == counts.tiers.get(name, (0, 0, 0))
                assert prediction.bytes_on(name) == most.get(name, 0)
            assert prediction.advances <= prediction.t * n


def test_a_chain_is_predicted_and_run():
    plan = chain_of(12, 20)
    prediction, schedule = plan.predict(12), plan.schedule(12)
    assert replay(schedule, 12) == counts_of(prediction)
    assert prediction.peak_bytes <= 20
    spent = sum(
        sum(plan.forward[a.start : a.stop]) for a in schedule if isinstance(a, Advance)
    )
    assert prediction.cost == spent and prediction.t >= 1
    result = run(ToyMachine(12), plan).result
    assert result == by_itself(12)


def test_mixed_slots_save_advances_and_sizes_matter():
    mixed = retape.fixed_space(snapshots=9, store=BOTH)
    plain = retape.fixed_space(snapshots=9)
    assert mixed.predict(300).advances < plain.predict(300).advances
    # A tape of three slots is kept less often than one of one slot.
    kept = [mixed.predict(100, 8, r).kept_tapes for r in (8, 24, 800)]
    assert kept[0] > kept[1] > kept[2] == 0
    # Stages are as long as a slot's bytes allow.
    assert mixed.predict(300, 100, 10).alpha == 10
    assert mixed.schedule(300, 100, 60).state == 1
    assert retape.fixed_space(snapshots=9, store={"state"}) == plain


@pytest.mark.slow
def test_a_prediction_reads_well():
    text = str(retape.fixed_space(snapshots=2, store=BOTH).predict(6, 8, 8))
    assert text.endswith("2 snapshots, peak 24 B; 3 tapes kept")
    text = str(retape.tiers(memory=1, disk=2).predict(10))
    assert text.endswith("; at most 1 snapshots on disk; cost 55, the least")
    rounded = retape.chain(
        forward=[1] * 9, states=[7] * 9, tapes=[5] * 9, budget=40, units=6
    )
    assert rounded.predict(9).bound == inf
    assert str(rounded.predict(9)).endswith("peak 27 B; cost 5")
    text = str(retape.tiers(memory=30, disk=400).predict(100_000))
    assert "times the least" in text


def test_a_machine_that_cannot_hold_tapes_refuses_a_mixed_plan():
    for schedule in (PLANS[1], PLANS[1].schedule(9), iter(PLANS[1].schedule(9))):
        with pytest.raises(PlanError, match="a `Untaped` cannot hold one: .*Leave `st"):
            run(Untaped(9), schedule)
    assert run(Untaped(9), retape.fixed_space(snapshots=2)).report.taped == 9
    # Nothing is kept where every stage can be reversed at once.
    assert run(Untaped(1), PLANS[1]).report.taped == 1
    with pytest.raises(PlanError, match="a `Untaped` cannot hold one"):
        run(Untaped(9, tells_length=False), PLANS[1])
