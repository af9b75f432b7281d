"""Schedules over tiers and of chains, told as data: in a process with NumPy or without.

Without NumPy the tables of all slots end a hundred times earlier, so the long ones are
then near the least, and not the least.
"""

import json
import random
import sys

SHORT, LONG = 25, 3


def schedules():
    """The schedules, in the same order in every process."""
    from retape.schedule import Chain, Hierarchy, Tier, TierCosts, TwoTier, least_budget

    draw = random.Random(38)

    def tiers(most):
        amounts = (0, 0.5, 1, 3, 8)
        each = [(draw.randint(0, most), *draw.choices(amounts, k=2)) for _ in range(3)]
        first, *rest = each
        each = [(max(first[0], 1), *first[1:]), *rest]
        return [Tier(f"t{i}", *one) for i, one in enumerate(each)]

    for _ in range(SHORT):
        n, costs = draw.randint(0, 30), TierCosts(disk_write=draw.randint(0, 4))
        yield TwoTier(n, draw.randint(0, 4), draw.randint(1, 6), costs)
        yield Hierarchy(n, tiers(2), stage=draw.randint(1, 3))
        sizes = [[draw.randint(1, 9) for _ in range(max(1, n // 2))] for _ in "fst"]
        yield Chain(*sizes, least_budget(*sizes[1:]) + draw.randint(0, 20))
    for _ in range(LONG):
        costs = TierCosts(disk_write=2, disk_read=draw.randint(0, 3))
        yield TwoTier(draw.randint(320, 350), draw.randint(5, 9), 40, costs)
        yield Hierarchy(draw.randint(90, 110), tiers(9))


def told():
    """Of each: is it exact, its bound, its cost, and the actions of the exact ones."""
    for schedule in schedules():
        exact = schedule.exact
        actions = [str(action) for action in schedule] if exact else []
        yield exact, schedule.bound(), schedule.cost(), actions


if __name__ == "__main__":
    sys.modules["numpy"] = None  # type: ignore[assignment]
    json.dump(list(told()), sys.stdout)
