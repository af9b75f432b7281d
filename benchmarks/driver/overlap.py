"""A run over memory and disk beside the same run in memory: what transfers cost.

The same plan, `tiers` with the costs that were measured, is obeyed with all snapshots
in memory, with those of the disk written and read in turn, and with `AsyncStore`. What
a run takes beyond its steps is waited for: the store, and opening and closing it. On a
busy machine the clock of the whole run says less, as the steps themselves wait for a
processor.

Run it: `python -m benchmarks.driver.overlap [--directory DIRECTORY]`.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from benchmarks import harness

import retape
from retape.storage import AsyncStore, measure


def step(x: np.ndarray, k: int) -> np.ndarray:
    y = x
    for _ in range(ROUNDS):
        y = y + 0.001 * np.sin(y)
    return y


def reverse_step(x: np.ndarray, k: int, g: np.ndarray) -> np.ndarray:
    states = [x]
    for _ in range(ROUNDS - 1):
        states.append(states[-1] + 0.001 * np.sin(states[-1]))
    for y in reversed(states):
        g = g + 0.001 * np.cos(y) * g
    return g


def run(
    store: Any, plan: retape.Plan, x0: np.ndarray, steps: int
) -> tuple[float, float]:
    """The share that a run waited, so that the least is the best, and its seconds."""
    program, began = retape.Program(step, reverse_step), perf_counter()
    how: dict[str, Any] = {"steps": steps, "plan": plan, "store": store}
    seconds = retape.adjoint(program, x0, seed=np.ones_like, **how).report.seconds
    whole = perf_counter() - began
    worked = sum(seconds[k] for k in ("forward", "recompute", "reverse"))
    return (whole - worked) / whole, whole


def main() -> None:
    quick = {"steps": 20, "megabytes": 0.4, "runs": 1}
    options = {"steps": 200, "megabytes": 4.0, "memory": 3, "runs": 3}
    given = harness.asked(
        __doc__, quick=quick, directory=tempfile.gettempdir(), **options
    )
    x0 = np.linspace(0.0, 1.0, int(given.megabytes * 1e6 / 8))
    each = harness.least(partial(step, x0, 0), clock=perf_counter)
    speed = measure(given.directory, nbytes=x0.nbytes)
    costs = retape.StepCosts(tape=1.0, backward=2.0)
    disk = retape.Tier("disk", 50, speed.write / each, speed.read / each)
    tiers = retape.Tier("memory", given.memory), disk
    plan = retape.tiers(levels=tiers, costs=costs, stage=1)
    peak = plan.schedule(given.steps).counts().peak_disk
    title = f"a step takes {each:.3g} s; {speed}; {peak} snapshots on disk"
    table = harness.Table("store", "s", "% waited for", title=title)

    def tiered(inner: Any) -> Any:
        memory = retape.MemoryStore[Any](capacity=given.memory)
        return retape.TieredStore(memory, inner)

    stores: dict[str, Callable[[str], Any]] = {
        "memory": lambda path: retape.MemoryStore(),
        "disk": lambda path: tiered(retape.DiskStore[Any](path)),
        "background": lambda path: tiered(AsyncStore(retape.DiskStore[Any](path))),
    }
    least: dict[str, tuple[float, float]] = {}
    for _ in range(given.runs):
        for name, make in stores.items():
            with tempfile.TemporaryDirectory(dir=given.directory) as path:
                took = run(make(path), plan, x0, given.steps)
            least[name] = min(took, least.get(name, took))
    for name, (waited, whole) in least.items():
        table.row(name, whole, 100 * waited)


ROUNDS = 8

if __name__ == "__main__":
    main()
