"""The cheapest two-tier schedule, by Dijkstra over the states of the machine."""

import heapq


def cheapest(n, memory, disk, f, write, read):
    """Least cost of advances, writes and reads; any schedule at all is allowed.

    Args:
        n: Steps.
        memory, disk: Slots.
        f: Cost of an advance.
        write, read: Costs of (memory, disk).
    """
    return cheapest_over(n, (memory, disk), f, write, read)


def cheapest_over(n, room, f, write, read):
    """The same over any number of tiers, with `room`, `write` and `read` of each."""
    start = (0, frozenset(), n)
    heap, done, tie = [(0.0, 0, start)], set(), 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        at, held, left = state
        if left == 0:
            return cost
        follow = []
        if at == left - 1:
            follow.append((cost, (None, held, left - 1)))
        elif at is not None and at < left - 1:
            follow.append((cost + f, (at + 1, held, left)))
        for tier in range(len(room)):
            used = sum(1 for _, where in held if where == tier)
            if at is not None and used < room[tier] and (at, tier) not in held:
                follow.append((cost + write[tier], (at, held | {(at, tier)}, left)))
        for step, tier in held:
            follow.append((cost + read[tier], (step, held, left)))
            follow.append((cost, (at, held - {(step, tier)}, left)))
        for more, new in follow:
            if new[0] is None or new[0] < max(new[2], 1):
                tie += 1
                heapq.heappush(heap, (more, tie, new))
    raise AssertionError("no schedule at all")
