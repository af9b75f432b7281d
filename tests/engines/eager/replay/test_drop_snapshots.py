"""How many snapshots to give up: against all that could be."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retape.engines.eager.replay._drop_snapshots import gap_cost, snapshots_to_drop

GAPS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 40)),
    min_size=1,
    max_size=8,
)


def total(gaps: list[tuple[int, int, int]], drop: int, room: int) -> float:
    """Steps run again when the last `drop` snapshots are given up."""
    widths = [0, *(width for _, _, width in gaps[1:])]
    mean = max(1.0, sum(widths) / max(1, len(widths) - 1))
    rooms = list(accumulate(reversed(widths[1:]), initial=room))[::-1]
    last = len(gaps) - 1 - drop
    whole = (sum(g[0] for g in gaps[last:]), sum(g[1] for g in gaps[last:]))
    each = [*((saved, steps) for saved, steps, _ in gaps[:last]), whole]
    return sum(gap_cost(*gap, rooms[k], mean) for k, gap in enumerate(each))


@given(gaps=GAPS, room=st.integers(-20, 400))
def test_of_few_snapshots_as_many_are_given_up_as_is_cheapest(
    gaps: list[tuple[int, int, int]], room: int
) -> None:
    widths = [0, *(width for _, _, width in gaps[1:])]
    drop = snapshots_to_drop([gap[:2] for gap in gaps], widths, room)
    costs = [total(gaps, each, room) for each in range(len(gaps))]
    assert costs[drop] == min(costs)


@pytest.mark.parametrize("room", [0, 30, 1000])
def test_of_many_snapshots_about_as_many(room: int) -> None:
    gaps = [(40, 40, 10)] * 60
    drop = snapshots_to_drop([(40, 40)] * 60, [0] + [10] * 59, room)
    costs = [total(gaps, each, room) for each in range(60)]
    assert costs[drop] <= 1.1 * min(costs)
