"""Schedules: every kind, at random sizes, times what a schedule promises.

The oracles are a replay, which trusts nothing of how a stream was made, and a search
over all that a machine could do (`search.py`).
"""

import pickle
import random
from dataclasses import dataclass
from typing import Any

import pytest

from retape import BudgetError, ScheduleError, StepCosts, Tier
from retape.schedule import (
    Advance,
    Chain,
    Drop,
    Hierarchy,
    Mixed,
    OnlineBinomial,
    OnlineMixed,
    OnlineTiers,
    Restore,
    Schedule,
    Store,
    Tape,
    replay,
)
from tests.judges.core.search import cheapest
from tests.schedule.numbers import least_budget, optimal_advances

AMOUNTS = (0, 0.5, 1, 3, 7)


@dataclass
class Case:
    """A schedule, what a replay is told of it, and how the search sees its machine.

    Attributes:
        made: The schedule, or the stream of one that does not know its length.
        n: Its steps.
        rooms: The units that fit into each tier, by name.
        search: What the search is told beside; `None` if the kind is not the cheapest.
        most: How many times the cheapest it may cost.
    """

    made: Any
    n: int
    rooms: dict[str, int]
    search: dict[str, Any] | None = None
    stage: int = 1
    most: float = 1.0

    @property
    def units(self):
        found = self.search or {}
        return found.get("state", 1), found.get("tape") or 1

    def replayed(self, actions=None):
        snapshots = (self.rooms or None) if self.units == (1, 1) else None
        return replay(
            self.made if actions is None else actions,
            self.n,
            capacity=snapshots,
            stage=self.stage,
        )


def costs_of(draw, tiers):
    return {
        name: [draw.choice(AMOUNTS) for _ in range(tiers)] for name in ("write", "read")
    }


def tiers_of(rooms, search):
    each = zip(rooms.items(), search["write"], search["read"], strict=True)
    return [Tier(name, room, write, read) for (name, room), write, read in each]


def binomial(draw, n):
    slots = draw.randint(1, 4)
    return Case(Schedule(n, slots), n, {"memory": slots}, {})


def staged(draw, n):
    slots, stage = draw.randint(1, 6), draw.randint(1, 5)
    split = draw.choice(["binomial", "bisection", "treeverse"])
    return Case(Schedule(n, slots, stage, split), n, {"memory": slots}, stage=stage)


def mixed(draw, n):
    state, tape = draw.choice([(1, 1), (2, 1), (3, 1), (1, 2), (2, 3), (3, 2)])
    budget = draw.randint(max(state, tape), 3 * max(state, tape))
    search = {"state": state, "tape": tape}
    return Case(Mixed(n, budget, state, tape), n, {"memory": budget}, search)


def two_tiers(draw, n):
    rooms = {"memory": draw.randint(0, 2), "disk": draw.randint(1, 2)}
    search = {"forward": draw.choice([0.5, 1, 3]), **costs_of(draw, 2)}
    made = Hierarchy(n, tiers_of(rooms, search), StepCosts(search["forward"]))
    return Case(made, n, rooms, search)


def hierarchy(draw, n):
    count = draw.randint(1, 4 if n < 5 else 3)
    rooms = {f"t{i}": draw.randint(0, 2 if count < 4 else 1) for i in range(count)}
    rooms["t0"] = rooms["t0"] or 1
    search = {"forward": 2, **costs_of(draw, count)}
    return Case(Hierarchy(n, tiers_of(rooms, search), StepCosts(2)), n, rooms, search)


def chain(draw, n):
    forward, states, tapes = ([draw.randint(1, 9) for _ in range(n)] for _ in "fst")
    budget = least_budget(states, tapes) + draw.randint(0, 25)
    return Case(Chain(forward, states, tapes, budget), n, {}, stage=n or 1)


def online(draw, n):
    slots = draw.randint(1, 5)
    placement = draw.choice(["least-cost", "doubling"])
    made = OnlineBinomial(slots, 1, placement).actions(n)
    return Case(list(made), n, {"memory": slots}, {}, most=1.5)


def online_mixed(draw, n):
    sizes = draw.choice([(3, 1, 1), (4, 1, 1), (4, 2, 1), (4, 1, 2)])
    budget, state, tape = sizes
    search = {"state": state, "tape": tape}
    made = list(OnlineMixed(*sizes).actions(n))
    # Where all tapes would have fit, each step but the last is run twice.
    return Case(made, n, {"memory": budget}, search, most=2)


def online_tiers(draw, n):
    memory, disk = draw.choice([(0, 1), (1, 0), (1, 1), (2, 3), (0, 4)])
    rooms = {"memory": memory, "disk": disk}
    write, read = draw.choice([1, 2]), draw.choice([1, 20])
    search = {"write": [0, write], "read": [0, read]}
    made = list(OnlineTiers(tiers_of(rooms, search)).actions(n))
    return Case(made, n, rooms, search, most=1.21)


OFFLINE = [*(binomial, staged, mixed, two_tiers, hierarchy, chain)]
ONLINE = [online, online_mixed, online_tiers]
KINDS = [pytest.param(kind, id=kind.__name__) for kind in OFFLINE + ONLINE]


def cases(kind, sizes, many=20):
    draw = random.Random(kind.__name__)
    for _ in range(many):
        yield kind(draw, draw.choice(sizes))


def spent(case):
    """The cost of a stream beside taping, added up action by action."""
    search, total = case.search or {}, 0.0
    names = list(case.rooms)
    write, read = search.get("write"), search.get("read")
    for action in case.made:
        match action:
            case Advance(start, stop):
                total += search.get("forward", 1) * (stop - start)
            case Store(_, _, tier) if write:
                total += write[names.index(tier)]
            case Restore(_, _, tier) if read:
                total += read[names.index(tier)]
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_legal_and_reverses_every_step_once(kind):
    """And no tier ever holds more than its room."""
    for case in cases(kind, [*range(20), 61, 100]):
        counts = case.replayed()
        assert counts.taped == case.n
        if kind in OFFLINE:
            assert counts == case.made.counts()
            assert list(case.made) == list(case.made)
        if kind is chain:
            assert case.made.peak_bytes() <= case.made.budget
            continue
        state, tape = case.units
        held, most = {}, dict.fromkeys(case.rooms, 0)
        for action in case.made:
            match action:
                case Store(_, slot, tier):
                    held[tier, slot] = state
                case Tape(_, _, slot, tier):
                    held[tier, slot] = tape
                case Drop(_, slot, tier):
                    del held[tier, slot]
            for name in most:
                used = sum(n for (tier, _), n in held.items() if tier == name)
                most[name] = max(most[name], used)
        assert all(most[name] <= case.rooms[name] for name in most) and not held


SEARCHED = [k for k in KINDS if k.values[0] not in (staged, chain)]


@pytest.mark.parametrize("kind", SEARCHED)
def test_none_is_cheaper_than_the_search_and_the_exact_ones_are_as_cheap(kind):
    # The search over slots that hold either takes five seconds at six steps.
    sizes = range(1, 6 if kind is online_mixed else 7)
    for case in cases(kind, sizes, 20 if kind in OFFLINE else 10):
        least = cheapest(case.n, list(case.rooms.values()), **case.search)
        if kind in OFFLINE:
            assert spent(case) == pytest.approx(least, abs=1e-9), case
        else:
            # What a placement moves between tiers is not among the actions.
            run = case.n * case.search.get("forward", 1)
            assert least - 1e-9 <= spent(case) <= case.most * (least + 3 * run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_action_is_seen(kind):
    seen = 0
    for case in cases(kind, range(2, 9)):
        actions = list(case.made)
        for i in range(len(actions)):
            try:
                same = case.replayed(actions[:i] + actions[i + 1 :])
            except ScheduleError:
                seen += 1
            else:
                # A second read of what is there already is no fault of the stream.
                assert isinstance(actions[i], Restore | Store | Tape | Advance), same
    assert seen > 50


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.__name__) for kind in OFFLINE]
)
def test_a_schedule_is_data(kind):
    for case, same in zip(cases(kind, [40], 4), cases(kind, [40], 4), strict=True):
        assert case.made == same.made
        assert pickle.loads(pickle.dumps(case.made)) == case.made
        assert list(pickle.loads(pickle.dumps(case.made))) == list(case.made)


def test_what_has_no_schedule_is_refused_with_the_least_that_has_one():
    draw, refused = random.Random(38), 0
    for _ in range(60):
        n, state, tape = (draw.randint(1, 5) for _ in range(3))
        budget = draw.randint(0, 6)
        if cheapest(n, [budget], state=state, tape=tape) is not None:
            assert Mixed(n, budget, state, tape).counts().taped == n
            continue
        with pytest.raises(BudgetError, match="The least possible is") as caught:
            Mixed(n, budget, state, tape)
        least = caught.value.least
        assert least is not None
        assert cheapest(n, [least], state=state, tape=tape) is not None
        assert cheapest(n, [least - 1], state=state, tape=tape) is None
        refused += 1
    assert refused > 5


def test_the_search_sees_a_schedule_that_is_worse_by_one_split():
    worse = [
        n
        for n in range(1, 9)
        if Schedule(n, 2, split="bisection").counts().advances > cheapest(n, [2])
    ]
    assert worse
    assert all(cheapest(n, [2], tape=1) < optimal_advances(n, 2) for n in range(2, 7))
