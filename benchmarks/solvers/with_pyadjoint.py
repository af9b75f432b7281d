"""pyadjoint under schedules of this library: gradients, and what its manager refuses.

    pip install -r benchmarks/requirements.txt
    python -m benchmarks.solvers.with_pyadjoint

A logistic map; its derivative by the start and by the rate is compared with one by
hand.
`states` is the most checkpoints that pyadjoint held on the way forward.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

try:
    import pyadjoint  # pyright: ignore[reportMissingImports]
except ImportError:
    sys.exit(print("skipped: pip install -r benchmarks/requirements.txt"))
from checkpoint_schedules import Move

from retape.interop import to_checkpoint_schedules
from retape.schedule import Mixed, OnlineBinomial, Schedule

START, RATE = 0.5, 1.1


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


def show(name: str, made: Callable[[int], Any], lengths: tuple[int, ...]) -> None:
    """Print a row for each length."""
    for length in lengths:
        want = by_hand(length)
        try:
            found, most = gradient(made(length), length)
        except Exception as error:  # what the other package says is the result
            print(f"{name:26}{length:6}  {type(error).__name__}: {error}")
            continue
        pairs = zip(found, want, strict=True)
        far = max(abs(f - w) / abs(w) for f, w in pairs)
        print(f"{name:26}{length:6}  difference {far:.0e}, {most:3} states", flush=True)
        assert math.isclose(far, 0, abs_tol=1e-12)


def main() -> None:
    """Print the table."""
    lengths = (1, 10, 100, 1000)
    known = to_checkpoint_schedules

    def online(d: int, drops: bool = False, placement: Any = "doubling") -> Any:
        return known(OnlineBinomial(d, placement=placement), drops=drops)

    show("Schedule(n, 8)", lambda n: known(Schedule(n, 8), n), lengths)
    show("Mixed(n, 8)", lambda n: known(Mixed(n, 8), n), lengths)
    show("online, 8", lambda n: online(8), lengths)
    show("online, 8, drops=True", lambda n: online(8, drops=True), lengths)
    print("with `Move` known to `process_taping`:")
    let_it_drop()
    show("online, 8, drops=True", lambda n: online(8, drops=True), lengths)
    least = lambda n: online(8, drops=True, placement="least-cost")  # noqa: E731
    show("least-cost, drops=True", least, lengths)


if __name__ == "__main__":
    main()
