"""Where the least-cost placement should depart from the least cost, and why.

    python -m benchmarks.schedules.departures [--longest 300] [--most 4]

A run of unknown length tells its placement nothing but that it has not ended, so a
placement is one path: at each stage one of s ways, to keep nothing or to evict one of
s - 1 snapshots. `LeastCost` evicts what is cheapest if the run ends next. This searches
all paths that do so at all but a few stages, and prints for each number of such
departures the path whose worst ratio to the offline optimum is least.

It is exact: of two paths to the same positions with as many departures only the one
with the lower worst ratio so far can be a part of the best. `schedule._least_cost` has
the first path of each table that is below 1.05 or as low as any policy
(`benchmarks/schedules/online.py`) can be.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from retape.schedule import OnlineBinomial, Schedule
from retape.schedule._binomial import beta
from retape.schedule._online_least_cost import LeastCost


class Path(NamedTuple):
    """The worst ratio of a path, and its (stage, evicted) departures."""

    worst: float
    departures: tuple[tuple[int, int], ...] = ()


Layer: TypeAlias = dict[tuple[tuple[int, ...], int], Path]
"""The best path to positions with a number of departures."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=300)
    parser.add_argument("--most", type=int, default=4)
    options = parser.parse_args()
    for snapshots in (2, 3, 4, 5):
        allowed = 1.2
        for most in range(options.most + 1):
            path = search(snapshots, most, options.longest, allowed)
            where = ", ".join(f"{stage}: {j}" for stage, j in path.departures)
            print(f"{snapshots} snapshots  {path.worst:.5f}  {{{where}}}", flush=True)
            allowed = path.worst


def search(snapshots: int, most: int, longest: int, allowed: float) -> Path:
    """The best path with at most so many departures, for all lengths up to `longest`.

    Paths whose ratio exceeds `allowed` are left.
    """
    settled = beta(snapshots, 2) - 1
    online = OnlineBinomial(snapshots)
    state = LeastCost.begin(snapshots)
    for stage in range(settled):
        state, _ = state.place(stage)
    layer: Layer = {(state.positions, 0): Path(1.0)}
    for stage in range(settled, longest - 1):
        optimum, later = Schedule(stage + 2, snapshots).counts().advances, Layer()
        for (positions, made), path in layer.items():
            here = replace(state, positions=positions)
            for moved, departure in choices(here, stage, made < most):
                after = replace(state, positions=moved)
                total = stage + 1 + online.turn_advances(after, stage + 2)
                ratio = max(path.worst, total / optimum)
                if ratio <= allowed:
                    new = Path(ratio, (*path.departures, *departure))
                    key = moved, made + len(departure)
                    later[key] = min(new, later.get(key, new))
        layer = later
    return min(layer.values())


def choices(
    state: LeastCost, stage: int, free: bool
) -> Iterator[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """Positions after a stage, and the departure that leads to them, if it is one."""
    cheapest, x = state.cheapest(stage), state.positions
    if cheapest is None:
        yield x, ()
    for j in range(1, len(x)):
        if j == cheapest or free:
            yield (
                (*x[:j], *x[j + 1 :], stage),
                () if j == cheapest else ((stage, j),),
            )


if __name__ == "__main__":
    main()
