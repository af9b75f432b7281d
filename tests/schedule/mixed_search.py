"""The fewest advances of a mixed schedule, by Dijkstra over the machine's states."""

import heapq


def fewest(n, budget, state, tape, *, restarts=False):
    """Any schedule at all is allowed; `None` if there is none.

    With `restarts` a tape holds the state after its stage, too.

    A state of the machine is (working step, what is held, stages left); what is held
    is a set of (stage, whether it is a tape). Every run of a stage costs 1, with a tape
    or without; the n that are taped in any case are taken off at the end.
    """
    heap, done, tie = [(0, 0, (0, frozenset(), n))], set(), 0
    while heap:
        cost, _, now = heapq.heappop(heap)
        if now in done:
            continue
        done.add(now)
        at, held, left = now
        if left == 0:
            return cost - n
        follow = []
        room = budget - sum(tape if taped else state for _, taped in held)
        if at is not None and at == left - 1:
            follow.append((cost + 1, (None, held, left - 1)))
        elif at is not None:
            follow.append((cost + 1, (at + 1, held, left)))
            if room >= tape and (at, True) not in held:
                follow.append((cost + 1, (at + 1, held | {(at, True)}, left)))
        if at is not None and room >= state and (at, False) not in held:
            follow.append((cost, (at, held | {(at, False)}, left)))
        for thing in held:
            step, taped = thing
            follow.append((cost, (at, held - {thing}, left)))
            if not taped:
                follow.append((cost, (step, held, left)))
            elif restarts and step + 1 < left:
                follow.append((cost, (step + 1, held, left)))
            if not taped:
                continue
            if step == left - 1:
                follow.append((cost, (None, held, left - 1)))
        for more, new in follow:
            if new[0] is None or new[0] < new[2]:
                tie += 1
                heapq.heappush(heap, (more, tie, new))
    return None
