"""pyadjoint under schedules of this library: gradients, and what its manager refuses.

    pip install -r benchmarks/requirements.txt
    python -m benchmarks.solvers.with_pyadjoint

A logistic map; its derivative by the start and by the rate is compared with one by
hand.
`states` is the most checkpoints that pyadjoint held on the way forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.harness import Table, asked, missing
from checkpoint_schedules import Move

from retape.interop import to_checkpoint_schedules
from retape.schedule import Mixed, OnlineBinomial, Schedule

START, RATE = 0.5, 1.1


missing("pyadjoint")
import pyadjoint  # pyright: ignore[reportMissingImports]  # noqa: E402


def by_hand(length: int) -> list[float]:
    """The derivatives, with all states in a list."""
    states = [START]
    for _ in range(length):
        states.append(RATE * states[-1] * (1 - 0.3 * states[-1]))
    back, rate = 2 * states[-1], 0.0
    for x in reversed(states[:-1]):
        rate += back * x * (1 - 0.3 * x)
        back *= RATE * (1 - 0.6 * x)
    return [back, rate]


def gradient(schedule: Any, length: int) -> tuple[list[float], int]:
    """The same by pyadjoint, and how many states it held."""
    tape = pyadjoint.Tape()
    pyadjoint.set_working_tape(tape)
    pyadjoint.continue_annotation()
    tape.enable_checkpointing(schedule)
    most = 0
    x, rate = pyadjoint.AdjFloat(START), pyadjoint.AdjFloat(RATE)
    y = x
    for _ in tape.timestepper(iter(range(length))):
        y = rate * y * (pyadjoint.AdjFloat(1.0) - 0.3 * y)
        most = max(most, sum(bool(step._checkpoint) for step in tape.timesteps))
    controls = [pyadjoint.Control(x), pyadjoint.Control(rate)]
    found = pyadjoint.ReducedFunctional(y * y, controls).derivative()
    pyadjoint.pause_annotation()
    return [float(v) for v in found], most


def let_it_drop() -> None:
    """Teach pyadjoint's manager the one action that it lacks while it tapes."""

    def drop(self: Any, action: Any, timestep: int) -> bool:
        self.tape.timesteps[action.n].delete_checkpoint()
        return False

    manager: Any = pyadjoint.checkpointing.CheckpointManager
    manager.process_taping.register(Move, drop)


Schedules = dict[str, Callable[[int], Any]]


def show(table: Table, manager: str, made: Schedules, lengths: list[int]) -> None:
    """Print a row for each schedule and length."""
    for name, make in made.items():
        for length in lengths:
            want = by_hand(length)
            try:
                found, most = gradient(make(length), length)
            except Exception as error:  # what the other package says is the result
                table.row(manager, name, length, f"{type(error).__name__}: {error}", "")
                continue
            pairs = zip(found, want, strict=True)
            far = max(abs(f - w) / abs(w) for f, w in pairs)
            table.row(manager, name, length, f"{far:.0e}", most)
            assert far <= 1e-12


def main() -> None:
    """Print the table."""
    lengths = [1, 10] if asked(__doc__).quick else [1, 10, 100, 1000]
    known = to_checkpoint_schedules

    def online(drops: bool = False, placement: Any = "doubling") -> Any:
        return known(OnlineBinomial(8, placement=placement), drops=drops)

    table = Table("manager", "schedule", "length", "difference", "states")
    usual: Schedules = {
        "Schedule(n, 8)": lambda n: known(Schedule(n, 8), n),
        "Mixed(n, 8)": lambda n: known(Mixed(n, 8), n),
        "online, 8": lambda n: online(),
        "online, 8, drops=True": lambda n: online(drops=True),
    }
    show(table, "pyadjoint's", usual, lengths)
    let_it_drop()
    dropping: Schedules = {
        "online, 8, drops=True": usual["online, 8, drops=True"],
        "least-cost, drops=True": lambda n: online(True, "least-cost"),
    }
    show(table, "knows `Move`", dropping, lengths)


if __name__ == "__main__":
    main()
