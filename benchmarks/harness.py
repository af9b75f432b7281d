"""How everything here is asked and measured: words, calls in turn, bytes, rows.

Machines are shared, so a time alone says little. Candidates take turns, and what is
told is a ratio: within a round, since what slows one slows its neighbour, or of the
least times of all rounds. Processor time is the clock where a call has one thread of
its own, the wall's where it waits or computes on many.

    times = in_turn({"plain": plain, "ours": ours}, rounds=5)
    table = Table("", "ms", "ratio")
    for name, each in times.items():
        table.row(name, 1e3 * each.least, each.over(times["plain"]))

`RETAPE_BENCH_JSON=FILE` appends each row to a file, too, as one line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SHORT = 1e-3
"""Seconds that a clock tells well enough: what takes less is called several times."""

Call = Callable[[], object]
Clock = Callable[[], float]


# Words ----------------------------------------------------------------------------


def asked(
    text: str | None,
    names: Iterable[str] = (),
    quick: Mapping[str, Any] | None = None,
    **options: Any,
) -> Namespace:
    """What a program is asked for: names of rows, `--quick`, and options.

    Args:
        text: What it does.
        names: Its rows: all of them where none are named.
        quick: What is usual with `--quick`, by which one sees that it runs.
        options: What is usual otherwise; it has the type that a word is read as, and
            `False` is a switch.
    """
    known, parser = list(names), ArgumentParser(
        description=text, formatter_class=RawDescriptionHelpFormatter
    )  # fmt: skip
    if known:
        parser.add_argument("names", nargs="*", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    for name, usual in options.items():
        how: dict[str, Any] = {"action": "store_true", "default": None}
        if usual is not False:
            how = {"type": type(usual), "help": f"{usual} by default"}
        parser.add_argument(f"--{name}", **how)
    given = parser.parse_args()
    if unknown := set(vars(given).get("names", ())) - set(known):
        parser.error(f"there is no {', '.join(unknown)}: {', '.join(known)}")
    usual = {"names": known, **options, **((quick or {}) if given.quick else {})}
    for name, value in usual.items():
        if name in vars(given) and getattr(given, name) in (None, []):
            setattr(given, name, value)
    return given


def missing(package: str) -> None:
    """End the program with a word where it needs a package that is not here."""
    if find_spec(package) is None:
        print(f"not run: it needs `{package}`; benchmarks/requirements.txt has it")
        sys.exit()


# Time -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds that one candidate took, round by round."""

    taken: tuple[float, ...]

    @property
    def least(self) -> float:
        """Of the round that was disturbed least."""
        return min(self.taken)

    @property
    def median(self) -> float:
        """Of all rounds."""
        return statistics.median(self.taken)

    def over(self, base: Times) -> float:
        """The median of the ratios within a round."""
        pairs = zip(self.taken, base.taken, strict=True)
        return statistics.median(a / b for a, b in pairs)


def in_turn(
    calls: Mapping[str, Call],
    rounds: int = 5,
    clock: Clock = time.process_time,
) -> dict[str, Times]:
    """Time candidates that take turns.

    Args:
        calls: What is called, by name.
        rounds: How often each is timed.
        clock: Of the processor, or `time.perf_counter`.
    """
    for call in calls.values():  # once before, which does not count
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(_seconds(call, clock))
    return {name: Times(tuple(each)) for name, each in taken.items()}


def least(call: Call, rounds: int = 5, clock: Clock = time.process_time) -> float:
    """The least seconds of one call, after one that does not count."""
    return in_turn({"": call}, rounds, clock)[""].least


def _seconds(call: Call, clock: Clock) -> float:
    gc.collect()
    began = clock()
    call()
    taken = clock() - began
    if taken >= SHORT:
        return taken
    calls = int(SHORT / max(taken, 1e-7))
    began = clock()
    for _ in range(calls):
        call()
    return (clock() - began) / calls


# Bytes ----------------------------------------------------------------------------


def python_bytes(job: Call) -> int:
    """The most bytes that Python objects held at once, NumPy's arrays among them."""
    gc.collect()
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def in_a_process(module: str, *words: str, **environment: str) -> dict[str, Any]:
    """What a module prints in its last line, as JSON, where nothing else ran.

    So a peak is that of one candidate. A process that fails says why in `why_not`.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
    )
    if done.returncode:
        return {"why_not": f"failed: {_reason(done.stderr)[:70]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _reason(text: str) -> str:
    """The line of a traceback that says why; JAX adds lines about itself."""
    lines = text.strip().splitlines() or ["no message"]
    named = [each for each in lines if each.split(":")[0].endswith(("Error", "Exit"))]
    return (named or lines)[-1]


# Rows -----------------------------------------------------------------------------


class Table:
    """A table in Markdown, printed row by row."""

    def __init__(self, *columns: str, title: str = "") -> None:
        self.columns, self.title = columns, title
        if title:
            print(f"\n{title}\n")
        print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")

    def row(self, *cells: object) -> None:
        """Print a row; a number is rounded to four digits, nothing is left empty."""
        assert len(cells) == len(self.columns), cells
        print("| " + " | ".join(map(_text, cells)) + " |", flush=True)
        if path := os.environ.get("RETAPE_BENCH_JSON"):
            found = {"benchmark": Path(sys.argv[0]).stem, "table": self.title}
            found |= {"row": dict(zip(self.columns, cells, strict=True))}
            with open(path, "a") as file:
                print(json.dumps(found, default=str), file=file)


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


# Figures --------------------------------------------------------------------------


def drawn(stem: str, draw: Callable[..., None], panels: int = 1, **figure: Any) -> None:
    """Draw a figure twice, for light and for dark pages, as SVG, what is what below.

    Args:
        stem: `-light.svg` and `-dark.svg` are added to it.
        draw: Draws on the axes that it is given.
        panels: Axes, side by side.
        figure: For the figure, its size above all.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "retape"})
    for ground, style in (("light", "default"), ("dark", "dark_background")):
        with plt.style.context(style):
            made, axes = plt.subplots(1, panels, squeeze=False, **figure)
            draw(*axes[0])
            names = axes[0][0].get_legend_handles_labels()
            made.legend(*names, loc="lower center", ncols=2, frameon=False)
            made.tight_layout(rect=(0, 0.22, 1, 1))
            path = f"{stem}-{ground}.svg"
            made.savefig(path, metadata={"Date": None}, transparent=True)
            plt.close(made)
            print(f"wrote {path}")
