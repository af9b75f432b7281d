"""The cheapest schedule there is, by search over all that a machine could do.

Nothing is assumed of how a good schedule looks: no recurrence, no nesting, no order in
which slots are freed. So it is slow, and right.
"""

import heapq
from itertools import count


def cheapest(n, rooms, *, forward=1, write=None, read=None, state=1, tape=None):
    """The least cost of reversing `n` steps beside taping each once; `None` if none.

    A state of the machine is (working step, what is held, steps left), and what is held
    is a set of (step, tier, whether it is a tape).

    Args:
        n: Steps.
        rooms: The units that fit into each tier.
        forward: The cost of running a step, with a tape or without.
        write, read: The costs of writing and reading a snapshot on each tier.
        state, tape: The units that a state and the tape of a step take; without `tape`
            no tape can be held.
    """
    write, read = write or [0] * len(rooms), read or [0] * len(rooms)
    tie, done = count(), set()
    heap = [(0, next(tie), (0, frozenset(), n))]
    while heap:
        cost, _, now = heapq.heappop(heap)
        if now in done:
            continue
        done.add(now)
        at, held, left = now
        if left == 0:
            return cost - n * forward
        follow = []
        if at is not None:
            after = (None, held, left - 1) if at == left - 1 else (at + 1, held, left)
            follow.append((cost + forward, after))
        for tier, room in enumerate(rooms):
            free = room - sum(
                tape if taped else state for _, where, taped in held if where == tier
            )
            if at is None:
                continue
            if free >= state and (at, tier, False) not in held:
                kept = held | {(at, tier, False)}
                follow.append((cost + write[tier], (at, kept, left)))
            if tape and at < left - 1 and free >= tape and (at, tier, True) not in held:
                kept = held | {(at, tier, True)}
                follow.append((cost + forward + write[tier], (at + 1, kept, left)))
        for thing in held:
            step, tier, taped = thing
            follow.append((cost, (at, held - {thing}, left)))
            paid = cost + read[tier]
            if not taped:
                follow.append((paid, (step, held, left)))
            elif step == left - 1:
                follow.append((paid, (None, held, left - 1)))
        for more, new in follow:
            if new[0] is None or new[0] < new[2] or new[2] == 0:
                heapq.heappush(heap, (more, next(tie), new))
    return None
