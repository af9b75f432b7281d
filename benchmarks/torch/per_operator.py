"""What recording and replaying cost, on operators of sixteen numbers.

python benchmarks/torch/per_operator.py

All figures are of one run and beside the plain program, in processor time. Recording is
what the forward takes more, autograd's own hooks for saved tensors included. Replaying
is all that the backward takes more when values have been let go: planning, running
operators again and holding what they make, over the number of operators run again. A
replay alone is that of one stage, its plan known.

With `mode="loop"` the forward has no graph, and a replayed call makes its part of the
graph: what it costs beyond the program's own call is given too.
"""

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

import retape.torch
from retape.engines.eager.replay._replay import Replay, needed_steps
from retape.engines.eager.trace._run import Run

OPERATORS = 4000
REPEATS = 9
TIGHT = 60_000


class Times(NamedTuple):
    """Microseconds an operator."""

    forward: float
    backward: float


def forward(w: torch.Tensor) -> torch.Tensor:
    h = torch.ones(4, 4)
    for _ in range(OPERATORS // 2):
        h = torch.tanh(h * w)
    return h.sum()


def once(under: AbstractContextManager[Any]) -> tuple[float, float]:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    begin = time.process_time()
    with under:
        loss = forward(w)
    middle = time.process_time()
    loss.backward()
    return middle - begin, time.process_time() - middle


def times(ways: list[AbstractContextManager[Any]]) -> list[Times]:
    """The least of a few runs; the ways take turns."""
    runs = [[once(way) for way in ways] for _ in range(REPEATS)]
    micro = 1e6 / OPERATORS
    return [
        Times(
            min(run[k][0] for run in runs) * micro, min(r[k][1] for r in runs) * micro
        )
        for k in range(len(ways))
    ]


def replay_alone() -> float:
    """Microseconds an operator to run one stage again and hold what it makes."""
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with retape.torch.recompute(memory=TIGHT):
        loss = forward(w)
    run = next(r for r in gc.get_objects() if type(r) is Run and r.living)
    snapshots, trace = run.trace.snapshots, run.trace
    middle = len(snapshots) // 2
    first, last = snapshots[middle].position, snapshots[middle + 1].position - 1
    wanted = {slot for slot in run.living_between(first, last)[2]}
    wanted -= trace.held.storages.keys()
    steps = needed_steps(trace, wanted)
    best = least(lambda: Replay(trace, steps, wanted).run())
    del loss
    return best * 1e6 / len(steps)


def least(action: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(50):
        begin = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - begin)
    return best


def report() -> None:
    recompute = retape.torch.recompute
    tight = recompute(memory=TIGHT)
    loop, short = (recompute(memory=m, mode="loop") for m in ("1GB", 2 * TIGHT))
    ways = [nullcontext(), recompute(memory="1GB"), tight, loop, short]
    plain, kept, evicted, noted, looped = times(ways)
    again, calls = tight.report.recomputed, short.report.recomputed
    replaying = (evicted.backward - kept.backward) * OPERATORS / again
    reversing = (looped.backward - plain.backward) * OPERATORS / calls
    for name, value, what in (
        ("plain forward", plain.forward, "us an operator"),
        ("recording", kept.forward - plain.forward, "us more"),
        ("unpacking", kept.backward - plain.backward, "us more, backward"),
        ("replaying", replaying, f"us a replayed one, of {again}, plans included"),
        ("a replay alone", replay_alone(), "us a replayed one"),
        ("loop, recording", noted.forward - plain.forward, "us more"),
        ("loop, replaying", reversing, f"us a replayed call, of {calls}, all of it"),
        ("", reversing - plain.forward, "us more than the program's own call"),
    ):
        print(f"{name:16}{value:7.2f} {what}")


def main() -> None:
    torch.set_num_threads(1)
    print("in Python")
    report()
    retape.torch.accelerate()
    print("compiled")
    report()


if __name__ == "__main__":
    main()
