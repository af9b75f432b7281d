"""A few cells of a table, in which each value of a column meets each of every other.

A fault mostly needs two causes at once: a kind of program and a kind of store, say. The
full product of the columns has them all, and is too large to run each time.
"""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Cell = tuple[Hashable, ...]
TRIES = 30


def pairwise(
    columns: Mapping[str, Sequence[Hashable]], can_be: Callable[..., bool], seed: int
) -> list[Cell]:
    """Cells that have each pair of values of two columns that can be at all.

    Args:
        columns: By name, their values.
        can_be: Given a cell by the names of its columns, whether there is such a one.
        seed: Of the choice among cells that are as good.
    """
    rng, names = random.Random(seed), list(columns)
    cells = [
        cell
        for cell in product(*columns.values())
        if can_be(**dict(zip(names, cell, strict=True)))
    ]
    having: dict[tuple[tuple[int, Hashable], ...], list[Cell]] = {}
    for cell in cells:
        for pair in pairs_of(cell):
            having.setdefault(pair, []).append(cell)
    left, chosen = dict.fromkeys(having), list[Cell]()
    while left:
        candidates = having[next(iter(left))]
        tried = rng.sample(candidates, min(TRIES, len(candidates)))
        best = max(tried, key=lambda cell: sum(pair in left for pair in pairs_of(cell)))
        chosen.append(best)
        for pair in pairs_of(best):
            left.pop(pair, None)
    return chosen


def pairs_of(cell: Cell) -> list[tuple[tuple[int, Hashable], ...]]:
    """All pairs of values of a cell, each with the number of its column."""
    return list(combinations(enumerate(cell), 2))


def of_new_pairs(cells: Sequence[Cell], needed: Callable[[int, int], bool]) -> Any:
    """Cells as parameters; those are `slow` that have no new pair that is needed.

    Args:
        cells: In the order in which they run.
        needed: Whether the pairs of two columns, by their numbers, are.
    """
    seen, found = set[Any](), list[Any]()
    for cell in cells:
        pairs = {p for p in pairs_of(cell) if needed(p[0][0], p[1][0])} - seen
        seen |= pairs
        found.append(pytest.param(cell, marks=[] if pairs else [pytest.mark.slow]))
    return found


def dealt(
    rows: Sequence[Hashable], columns: Sequence[Hashable], rounds: int = 1
) -> list[Any]:
    """All cells of a table, of which those beside some of its diagonals are `slow`.

    A diagonal goes round the shorter side: each row and each column is on it.

    Examples:
        >>> [cell.values for cell in dealt("abc", "xy") if not cell.marks]
        [('a', 'x'), ('b', 'y'), ('c', 'x')]
    """
    longer = max(len(rows), len(columns))
    diagonals = {
        (rows[i % len(rows)], columns[(i + number) % len(columns)])
        for number in range(rounds)
        for i in range(longer)
    }
    return [
        pytest.param(*cell, marks=[] if cell in diagonals else [pytest.mark.slow])
        for cell in product(rows, columns)
    ]
