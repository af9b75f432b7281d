"""The example of Figs. 8 and 28, beside the published points: Figs. 29 and 30.

    python -m benchmarks.vlad [--quick] [--figure docs/assets/paper-29-30]

The example is VLAD's, with lists as in the paper, and the same as a Python function
with arrays (`retape.native`). The figure is drawn twice, for light and for dark pages.
Times are seconds of the processor, the least of some runs. Live bytes are exact, from a
run of their own in which everything is collected at the end of every stage.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.harness import Table, asked, drawn, in_a_process
from benchmarks.vlad.published import ORIGINAL_HERE, PUBLISHED

LENGTHS = (53, 101, 211, 401, 809, 1601, 3203)
COLUMNS = (
    "l",
    "steps",
    "primal s",
    "reverse s",
    "reverse MB",
    "divide and conquer s",
    "live kB",
    "mapped MB",
    "Python function s",
    "its MB",
    "published s, none",
    "published s, d&c",
)
REVERSE_UP_TO = 401
"""The tape of plain reverse mode takes 0.9 GB here, and twice that for the next."""


def measured(variant: str, l: int, *options: str, runs: int = 1) -> dict[str, float]:  # noqa: E741
    """The fastest of some runs of `measure.py`, each a process."""
    words = variant, "1000", str(l), *options
    found = [in_a_process("benchmarks.vlad.measure", *words) for _ in range(runs)]
    assert all(each["gradient_error"] < 1e-6 for each in found), "it is x itself"
    return min(found, key=lambda each: each["seconds"])


def table(lengths: tuple[int, ...], runs: int) -> list[dict[str, float]]:
    """Measure and print, one line for each l."""
    table = Table(*COLUMNS)
    rows: list[dict[str, float]] = []
    for l in lengths:  # noqa: E741
        row: dict[str, float] = {"l": l}
        row["primal"] = measured("primal", l, runs=runs)["seconds"]
        if l <= REVERSE_UP_TO:
            plain = measured("reverse", l, runs=runs)
            row["reverse"], row["reverse_bytes"] = plain["seconds"], plain["live"]
        divided = measured("checkpoint", l, runs=runs)
        row["checkpoint"], row["mapped"] = divided["seconds"], divided["mapped"]
        row["steps"] = divided["steps"]
        row["live"] = measured("checkpoint", l, "--exact")["live"]
        python = measured("python", l, runs=runs)
        row["python"], row["python_mapped"] = python["seconds"], python["mapped"]
        rows.append(row)
        table.row(*_cells(row))
    return rows


def _cells(row: dict[str, float]) -> Iterator[object]:
    point = next(p for p in PUBLISHED if p.l == row["l"])
    yield from (row["l"], f"{row['steps']:,}", row["primal"], row.get("reverse"))
    yield row["reverse_bytes"] / 1e6 if "reverse" in row else None
    yield from (row["checkpoint"], row["live"] / 1e3, row["mapped"] / 1e6)
    yield from (row["python"], row["python_mapped"] / 1e6)
    yield from (point.vlad[0], point.vlad_checkpoint[0])


PUBLISHED_LINES = {
    "Tapenade, all stored": ("tapenade", "C0", "s"),
    "Tapenade, binomial": ("tapenade_binomial", "C0", "o"),
    "original VLAD, all stored": ("vlad", "C1", "s"),
    "original VLAD, divide and conquer": ("vlad_checkpoint", "C1", "o"),
}
OUR_LINES = {
    "ours, VLAD, all stored": ("reverse_bytes", "reverse", "C2", ":"),
    "ours, VLAD, divide and conquer": ("mapped", "checkpoint", "C2", "-"),
    "ours, Python function": ("python_mapped", "python", "C3", "-"),
}
"""Of each line: what is drawn as space and as time, its colour and its style."""


def draw(rows: list[dict[str, float]], space: Any, time: Any) -> None:
    """Figs. 29 and 30: our curves beside the published points."""
    lengths = [p.l for p in PUBLISHED]
    for name, (field, colour, mark) in PUBLISHED_LINES.items():
        points = [getattr(p, field) for p in PUBLISHED]
        look = {"label": name, "color": colour, "marker": mark, "linestyle": ""}
        space.plot(lengths, [kb / 1e3 for _, kb in points], mfc="none", **look)
        time.plot(lengths, [seconds for seconds, _ in points], mfc="none", **look)
    for name, (bytes_, seconds, colour, line) in OUR_LINES.items():
        there = [row for row in rows if seconds in row]
        ours = [row["l"] for row in there]
        look = {"label": name, "color": colour, "linestyle": line, "marker": "."}
        space.plot(ours, [row[bytes_] / 1e6 for row in there], **look)
        time.plot(ours, [row[seconds] for row in there], **look)
    for axes, what in ((space, "Fig. 29: MB"), (time, "Fig. 30: seconds")):
        axes.set(xscale="log", yscale="log", xlabel="l", title=what)


def main() -> None:
    quick = {"runs": 1, "longest": 211}
    given = asked(__doc__, quick=quick, runs=2, longest=LENGTHS[-1], figure="")
    rows = table(tuple(l for l in LENGTHS if l <= given.longest), given.runs)  # noqa: E741
    title = "times faster than the original compiler on a machine of this year"
    faster = Table("l", "all stored", "divide and conquer", title=title)
    for row in rows:
        if row["l"] in ORIGINAL_HERE:
            none, divided = ORIGINAL_HERE[int(row["l"])]
            faster.row(row["l"], none / row["reverse"], divided / row["checkpoint"])
    if given.figure:
        drawn(given.figure, partial(draw, rows), panels=2, figsize=(9, 5.2))


if __name__ == "__main__":
    main()
