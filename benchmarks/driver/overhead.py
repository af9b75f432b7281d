"""What the driver costs beside a loop written by hand over the same schedule.

Both run one binomial schedule with the same step and the same adjoint, in memory. The
loop by hand does what a careful programmer does: it copies a state when it is stored
and when it is read, and nothing else. Times are processor seconds, the least of some
runs in turn; the ratio is what counts.

Run it: `python -m benchmarks.driver.overhead`.
"""

from functools import partial

import numpy as np
from benchmarks.harness import Table, asked, in_turn, least

import retape
from retape.schedule import Advance, Restore, Reverse, Schedule, Store


def step(x: np.ndarray, k: int) -> np.ndarray:
    y = np.sin(x)
    for _ in range(ROUNDS):
        y = 0.5 * y + 0.1 * x
    return y


def reverse_step(x: np.ndarray, k: int, g: np.ndarray) -> np.ndarray:
    a, b = 0.0, g
    for _ in range(ROUNDS):
        a, b = a + 0.1 * b, 0.5 * b
    return a + np.cos(x) * b


ROUNDS = 4


def by_hand(x0: np.ndarray, schedule: Schedule) -> np.ndarray:
    """The loop that a user would write."""
    slots: dict[int, np.ndarray] = {}
    x, g = x0.copy(), np.zeros(0)
    for action in schedule:
        kind = type(action)
        if kind is Advance:
            for k in range(action.start, action.stop):
                x = step(x, k)
        elif kind is Store:
            slots[action.slot] = x.copy()
        elif kind is Restore:
            x = slots[action.slot].copy()
        elif kind is Reverse:
            tape = []
            for k in range(action.start, action.stop):
                tape.append(x)
                if k + 1 < action.stop or action.stop == schedule.length:
                    x = step(x, k)
            if action.stop == schedule.length:
                g = np.ones_like(x)
            for k in range(action.stop - 1, action.start - 1, -1):
                g = reverse_step(tape[k - action.start], k, g)
    return g


def by_retape(x0: np.ndarray, schedule: Schedule) -> np.ndarray:
    """The same by `retape.adjoint`."""
    return retape.adjoint(
        retape.Program(step, reverse_step),
        x0,
        seed=np.ones_like,
        steps=schedule.length,
        plan=retape.fixed_space(snapshots=schedule.snapshots, stage=schedule.stage),
    ).cotangent


def main() -> None:
    """Print a table of ratios."""
    runs = asked(__doc__, quick={"runs": 1}, runs=7).runs
    global ROUNDS
    columns = "us a step", "d", "alpha", "by hand s", "retape s", "ratio"
    table = Table("numbers", *columns)
    for size, rounds in [(64, 1), (64, 4), (64, 16), (4096, 4), (200_000, 1)]:
        ROUNDS = rounds
        x0 = np.linspace(0.1, 1.0, size)
        one = least(partial(step, x0, 0), runs)
        for d, alpha in [(5, 1), (20, 1), (5, 8)]:
            schedule = Schedule(500 if size < 10**5 else 50, d, alpha)
            assert (by_hand(x0, schedule) == by_retape(x0, schedule)).all()
            ways = {f.__name__: partial(f, x0, schedule) for f in (by_hand, by_retape)}
            hand, ours = (each.least for each in in_turn(ways, runs).values())
            table.row(size, one * 1e6, d, alpha, hand, ours, ours / hand)


if __name__ == "__main__":
    main()
