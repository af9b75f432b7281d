from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._improve import Exchange
from retape.engines.eager.compiled._ladder import Ladder, Rung
from retape.engines.eager.compiled._liveness import account
from tests.engines.eager.compiled.test_front import small, wide


def test_a_ladder_keeps_what_nothing_beats():
    ladder = Ladder()
    assert ladder.best(100) is None
    offered = [(10, 50), (20, 40), (20, 60), (15, 30), (8, 70), (30, 30), (40, 0)]
    for peak, cost in offered:
        ladder.offer(Rung(peak, cost, frozenset()))
    left = [(each.peak, each.cost) for each in ladder]
    assert left == [(8, 70), (10, 50), (15, 30), (40, 0)]
    assert ladder.best(39) == ladder[2] and len(ladder) == 4
    assert ladder.best(7) is None


def test_exchanges_find_what_lies_between_two_plans():
    found = small(wide)
    joint = found.joint
    counter, ladder = PlanCounter(joint, ()), Ladder()
    for keep in (found.usual, frozenset()):
        plan = counter(keep)
        ladder.offer(Rung(plan.peak, plan.cost, keep))
    before = list(ladder)
    Exchange(counter, ladder).run(300)
    assert counter.counted < 320 and len(ladder) > len(before)
    for each in ladder:  # what was counted on the way is what the plan takes
        slow = account(joint, each.keep, ())
        assert (slow.peak, slow.cost) == (each.peak, each.cost)
