"""Runs that are killed with -9, some of whose files are then damaged.

    python -m benchmarks.driver.kills [--kills 1000] [--damage 0.2] [--seconds 600]

Twenty programs: steps of NumPy in place and not, with and without tapes of their own,
costs along the run, known and unknown lengths, five plans, and stores on disk, with
memory before it, and asynchronous. Each is run whole first. Then it is forked, killed
at a random time and taken up again, round after round; after some kills a file of the
run is cut, changed, emptied or removed. A round ends with a run that nobody kills.

Right is: the bits of the whole run, or a refusal by name where a file was damaged.
Anything else ends the program with 1. `--seconds` ends it early, with its counts.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.harness import Table, asked

import retape
from retape.storage import AsyncStore

ROUND = 10
"""Kills before a run is let through."""

CELLS, STEPS = 64, 120

NOTHING = "no file yet"


class Program(NamedTuple):
    """How a program differs from the others."""

    number: int
    plan: retape.Plan
    store: str
    known: bool

    def __str__(self) -> str:
        length = "known" if self.known else "unknown"
        return f"{self.number:2} {self.store:9} {length:7} {self.plan!r:.44}"


def programs() -> list[Program]:
    """Five plans, four stores, each pair once."""
    both = {"state", "tape"}
    n = STEPS
    sizes = {"forward": [1] * n, "states": [2, 1] * (n // 2), "tapes": [1] * n}
    plans = [
        retape.fixed_space(snapshots=6, stage=3),
        retape.tiers(memory=2, disk=4),
        retape.within(f"{CELLS * 8 * 12} B"),
        retape.fixed_space(snapshots=8, store=both),
        retape.chain(**sizes, budget=14),
    ]
    stores = ["disk", "tiered", "async", "far async"]
    pairs = [(plan, store) for plan in plans for store in stores]
    return [
        Program(i, plan, store, plan.needs_length or i % 2 == 0)
        for i, (plan, store) in enumerate(pairs)
    ]


def store_of(program: Program, path: Path) -> object:
    """A new store over the directory."""
    disk = retape.DiskStore(path, every=0.01)
    if program.store == "disk":
        return disk
    if program.store == "tiered":
        return retape.TieredStore(retape.MemoryStore(capacity=2), disk)
    if program.store == "async":
        return AsyncStore(disk)
    return retape.TieredStore(retape.MemoryStore(capacity=1), AsyncStore(disk))


def run(program: Program, path: Path) -> tuple[bytes, bool]:
    """The bits of the gradient, and whether the run went on from an earlier one."""
    buffer, odd = np.empty(CELLS), program.number % 3

    def step(x: np.ndarray, k: int) -> np.ndarray:
        time.sleep(0.0003)
        if odd == 0:
            x *= 3.9 * (1.0 - x)
            return x
        if odd == 1:
            return 3.9 * x * (1.0 - x)
        np.multiply(3.9 * x, 1.0 - x, out=buffer)
        return buffer

    def reverse_step(x: np.ndarray, k: int, g: np.ndarray) -> np.ndarray:
        return 3.9 * (1.0 - 2.0 * x) * g

    def tape(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        kept = x.copy()
        return step(x, k), kept

    more: dict[str, Any] = {}
    if program.number % 4 == 1:
        more = {"cost": lambda x, k: float(x[0]), "cost_gradient": _first}
    if program.number % 5 == 2 and odd:
        more["tape"] = tape
    if not program.known:
        last = last_state(odd)
        more["done"] = lambda x: x.tobytes() == last
    result = retape.adjoint(
        retape.Program(step, reverse_step, **more),
        np.linspace(0.11, 0.12, CELLS),
        seed=np.ones_like,
        plan=program.plan,
        store=store_of(program, path),
        key=f"program {program.number}",
        reuse=True,
        steps=STEPS if program.known else None,
    )
    return result.cotangent.tobytes() + result.state.tobytes(), result.report.resumed


def _first(x: np.ndarray, k: int) -> np.ndarray:
    g = np.zeros_like(x)
    g[0] = 1.0
    return g


def last_state(odd: int) -> bytes:
    """The state after the last step, by which a run of unknown length ends."""
    x = np.linspace(0.11, 0.12, CELLS)
    for _ in range(STEPS):
        x = x * (3.9 * (1.0 - x)) if odd == 0 else 3.9 * x * (1.0 - x)
    return x.tobytes()


def forked(program: Program, path: Path) -> int:
    """A child that runs the program and writes what it found beside the directory."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        bits, resumed = run(program, path)
        path.with_suffix(".got").write_bytes(bits + bytes([resumed]))
        code = 0
    except retape.StoreError as error:
        path.with_suffix(".refused").write_text(str(error))
        code = 2
    finally:
        os._exit(code)


def damage(path: Path, drawn: random.Random) -> str:
    """Damage a file of a run; what was done."""
    files = sorted(each for each in path.glob("*.npz") if each.is_file())
    if not files:
        return NOTHING
    file, way = drawn.choice(files), drawn.choice(["cut", "flip", "empty", "remove"])
    data = bytearray(file.read_bytes())
    if way == "remove":
        file.unlink()
    elif way == "empty" or not data:
        file.write_bytes(b"")
    elif way == "cut":
        file.write_bytes(data[: drawn.randrange(len(data))])
    else:
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        file.write_bytes(data)
    kind = "record" if file.name.startswith("record") else "snapshot"
    return f"{way} {kind}"


class Trial:
    """One program's kills."""

    def __init__(self, program: Program, place: Path, drawn: random.Random) -> None:
        self.program, self.place, self.drawn = program, place, drawn
        began = time.monotonic()
        self.whole, _ = run(program, place / "whole")
        self.seconds = time.monotonic() - began
        self.path = place / "run"
        self.counts: Counter[str] = Counter()
        self.left = 0

    def round(self, share: float) -> None:
        """Ten kills, and a run that is let through."""
        damaged = False
        for _ in range(ROUND):
            self.left = self._snapshots()
            child = forked(self.program, self.path)
            time.sleep(self.drawn.uniform(0.02, 0.3) * self.seconds)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                self._judge(os.waitstatus_to_exitcode(status), damaged)
                damaged = False
                continue
            self.counts["kills"] += 1
            if self.drawn.random() < share:
                how = damage(self.path, self.drawn)
                self.counts[f"damaged: {how}"] += 1
                damaged |= how != NOTHING
        self.left = self._snapshots()
        _, status = os.waitpid(forked(self.program, self.path), 0)
        self._judge(os.waitstatus_to_exitcode(status), damaged)

    def _snapshots(self) -> int:
        return sum(not file.name.startswith("rec") for file in self.path.glob("*.npz"))

    def _judge(self, code: int, damaged: bool) -> None:
        """Compare what a run that came to its end has found."""
        got, refused = (self.path.with_suffix(end) for end in (".got", ".refused"))
        right = False
        if code == 0:
            *bits, resumed = got.read_bytes()
            right = bytes(bits) == self.whole
            if resumed:
                self.counts["went on"] += 1
            elif not self.left:
                self.counts["begun where no snapshot was written yet"] += 1
            else:
                self.counts["begun anew with snapshots there"] += 1
                # A damaged one, or the record of all: right, and all is run again.
                right = right and damaged
        elif code == 2 and damaged:
            self.counts["refused by name after damage"] += 1
            right = True
        if not right:
            print(f"WRONG: {self.program}, code {code}")
            if refused.exists():
                print(refused.read_text())
        self.counts["wrong"] += not right
        for file in (got, refused):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


def main() -> None:
    """Print the counts of each program, and their sums."""
    usual = {"kills": 1000, "damage": 0.2, "seconds": float("inf"), "seed": 0}
    options = asked(__doc__, quick={"kills": 20, "seconds": 30.0}, **usual)
    until = time.monotonic() + options.seconds
    drawn, total = random.Random(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        trials: list[Trial] = []
        for program in programs():
            place = Path(folder) / str(program.number)
            place.mkdir()
            trials.append(Trial(program, place, drawn))
        while total["kills"] < options.kills and time.monotonic() < until:
            for trial in trials:
                if time.monotonic() < until:
                    trial.round(options.damage)
            total = sum((trial.counts for trial in trials), Counter[str]())
    table = Table("program", "kills", "wrong")
    for trial in trials:
        table.row(trial.program, trial.counts["kills"], trial.counts["wrong"])
    for name, count in sorted(total.items()):
        print(f"{count:6} {name}")
    print(f"{total['wrong']:6} wrong")
    sys.exit(total["wrong"] > 0)


if __name__ == "__main__":
    main()
