"""How many more steps a GPU advances than the binomial optimum, at equal memory.

Memory is counted in states: a snapshot takes one, and so does the tape of a step. The
optimum is that of all stages and numbers of snapshots that fit; beside it

- the device's form: the binomial schedule, in chunks of up to 64 steps. Steps that a
  chunk makes in vain, where a stage is not a multiple of it, count as advanced;
- loops of known trip count only, which nobody waits for: two levels of snapshots and a
  taped stage, all that four copies of a step allow, with the best lengths there are.

Both counts are compared with an execution of every small case before the table is
made. Run: `python -m benchmarks.accelerators.levels`; it takes no GPU and no JAX.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from retape.schedule import Schedule
from retape.schedule._binomial import least_stores

CHUNK = 64
"""Steps of a chunk at most, as in `nest/_chunk_sizes`."""


MORE = 0.05
"""What a schedule may advance beyond the optimum."""


class Way(NamedTuple):
    """Steps advanced, and how: the stage, then the snapshots of each level."""

    advances: int
    stage: int
    levels: tuple[int, ...]


def optimum(n: int, memory: int) -> Way:
    """The fewest advances of all binomial schedules that fit."""
    sizes = ((s, memory - s) for s in range(1, min(n, memory - 1) + 1))
    return min(Way(Schedule(n, d, s).counts().advances, s, (d,)) for s, d in sizes)


def device_form(n: int, memory: int, best: Way) -> Way:
    """The same in chunks: of those with 5 % more advances at most, the fewest waits."""
    ways = []
    for s in range(1, min(n, memory - 1) + 1):
        stages = -(-n // s)
        advanced = Schedule(stages, memory - s).counts().advances * made(s)
        ways.append(Way(advanced, s, (memory - s,)))
    near = [way for way in ways if way.advances <= (1 + MORE) * best.advances]
    return min(near, key=lambda way: waits(n, way))


def made(stage: int) -> int:
    """Steps that the chunks of a stage make."""
    chunks = -(-stage // CHUNK)
    return chunks * -(-stage // chunks)


def waits(n: int, way: Way) -> float:
    """Waits of the device's form for each step run, as `explain` counts them."""
    stages = -(-n // way.stage)
    chunks = way.advances // made(way.stage) * -(-way.stage // CHUNK)
    return (stages + chunks) / (way.advances + n)


def static(n: int, memory: int) -> Way | None:
    """The best two levels of scans; `None` if none fit."""
    ways = []
    for s in range(1, min(n, memory - 1) + 1):
        stages, room = -(-n // s), memory - s
        for outer in range(1, min(room, stages) + 1):
            inner = -(-stages // outer)
            if outer + inner - 1 <= room:
                count = static_advances(outer, inner, stages) * s
                ways.append(Way(count, s, (outer, inner)))
    return min(ways, default=None)


def static_advances(outer: int, inner: int, stages: int) -> int:
    """Stages that two levels advance; those beyond the end are swept in vain."""
    vain = outer * inner - stages
    return (outer - 1) * inner + outer * (inner - 1) + vain


# By execution -------------------------------------------------------------------


def executed(outer: int, inner: int) -> tuple[int, int]:
    """Stages that two levels advance, and the most snapshots, by doing it."""
    held: set[int] = set()
    advances = peak = 0
    for segment in range(outer):
        held.add(segment * inner)
        peak = max(peak, len(held))
        advances += inner * (segment + 1 < outer)
    for segment in reversed(range(outer)):
        for stage in range(segment * inner, (segment + 1) * inner):
            advances += stage not in held
            held.add(stage)
            peak = max(peak, len(held))
        for stage in reversed(range(segment * inner, (segment + 1) * inner)):
            held.remove(stage)
    return advances, peak


@cache
def least(stages: int, snapshots: int) -> int:
    """The least advances of stages with so many snapshots, by trying every split."""
    if stages <= 1:
        return 0
    if snapshots == 1:
        return stages * (stages - 1) // 2
    splits = range(1, stages)
    return min(
        k + least(stages - k, snapshots - 1) + least(k, snapshots) for k in splits
    )


def check() -> None:
    """Hold the formulas against execution and against every split."""
    for outer in range(1, 9):
        for inner in range(1, 9):
            whole = outer * inner
            found = static_advances(outer, inner, whole), outer + inner - 1
            assert executed(outer, inner) == found, (outer, inner)
    for stages in range(1, 40):
        for snapshots in range(1, 8):
            found = Schedule(stages, snapshots).counts().advances
            assert found == least(stages, snapshots), (stages, snapshots)
            assert least_stores(stages, snapshots) <= stages


def main() -> None:
    """Print a row for each number of steps and memory."""
    check()
    print(
        "| steps | states held | advances of a step, at least | device's form "
        "| waits a step | known trips only |"
    )
    print("|---|---|---|---|---|---|")
    for n in (10**3, 10**4, 10**5, 10**6):
        third = n ** (1 / 3)
        for memory in map(round, (1.5 * third, 3.1 * third, 6 * third, 2 * n**0.5)):
            print(row(n, memory), flush=True)


def row(n: int, memory: int) -> str:
    """Advances for each step by the optimum, and how much more the two make."""
    best = optimum(n, memory)
    form, scans = device_form(n, memory, best), static(n, memory)
    more = lambda way: f"+{100 * (way.advances / best.advances - 1):.1f} %"  # noqa: E731
    return (
        f"| {n} | {memory} | {best.advances / n:.2f} | {more(form)} "
        f"| {waits(n, form):.3f} | {more(scans) if scans else 'none fits'} |"
    )


if __name__ == "__main__":
    main()
