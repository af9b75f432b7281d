"""Is each budget held, by a counter that knows nothing of budgets, to the same bits?

    python -m benchmarks.torch.held [--accelerate] [our-gpt|llama|rk4|streams ...]

Small models of ours, and of `transformers` and `torchdiffeq`; on a GPU also programs of
what only that has. Budgets are those that a user is told: of `estimate` the least, the
sensible one and half of the way to all of it; the least of the error of a smaller one;
what an ample run says that it took. A row has the most bytes at once in runs 0 to 6,
planning included, without PyTorch's own graph, as `counters.py` counts; what the report
says of its record; and what is wrong: OVER a budget above a megabyte, NOT THE SAME
where loss, gradients or generators are not those of the plain run to the last bit (what
differs between two plain runs is not looked at), or a refusal. With `store="cpu"`
snapshots go to page-locked memory. Last come two runs with `verify=True`, which must
raise no alarm.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from benchmarks.harness import Table, asked
from benchmarks.torch import cuda_programs, others, programs
from benchmarks.torch.allocator import DEVICE, ON_CUDA, ready_gradients
from benchmarks.torch.counters import (
    counter,
    start_under_the_counter,
    stay_reproducible,
)
from benchmarks.torch.programs import Program
from torch import Tensor

import retape.torch
from retape import BudgetError, MachineError, UnsupportedError

RUNS = 7
SMALL = 10**6
"""Bytes below which the record of a run is no part of a budget."""
COLUMNS = ("", "budget", "MB", "most MB", "record MB", "run again", "wrong")


class Budget(NamedTuple):
    """Options of `recompute`, and who says that they are enough."""

    name: str
    memory: int | None
    options: dict[str, Any]


def step(loss: Callable[[], Tensor]) -> Tensor:
    """One run from a fixed seed; gradients are there before."""
    torch.manual_seed(1)
    value = loss()
    value.backward()
    return value.detach()


def outcome(program: Program, value: Tensor) -> list[Tensor]:
    """Loss, gradients and where generators are, copied; gradients are zero again."""
    states = [torch.get_rng_state()]
    states += [torch.cuda.get_rng_state()] if ON_CUDA else []
    found = [p.grad for p in program.parameters if p.grad is not None]
    copies = [value, *(each.clone() for each in found), *states]
    for each in found:
        each.zero_()
    return copies


def budgets(program: Program) -> Iterator[Budget]:
    """What the library says is enough, and who says so."""
    run = retape.torch.recompute(memory="10GB")
    outcome(program, step(run(program.loss)))
    ample, least = run.report.peak_bytes, 1
    try:
        retape.torch.recompute(memory=1)(program.loss)()
    except BudgetError as error:
        least = error.least or 1
    half = (least + ample) // 2
    try:
        found = retape.torch.estimate(program.loss)
        yield Budget("least", found.least, {})
        yield Budget("sensible", found.sensible, {})
        half = (found.least + found.enough) // 2
    except UnsupportedError:  # it reads values: an error and a report say as much
        pass
    named = {"half": half, "error": least, "ample": ample}
    yield from (Budget(name, memory, {}) for name, memory in named.items())
    if ON_CUDA:
        yield Budget("half, on the host", half, {"store": "cpu"})
    yield Budget("verified", None, {"snapshots": 3, "stage": 16, "verify": True})


class Runs:
    """A program that is run in budgets."""

    def __init__(self, program: Program) -> None:
        self.program, self.counter = program, counter()
        model = program.model
        state = {} if model is None else model.state_dict()
        self.before = {name: each.clone() for name, each in state.items()}
        ready_gradients(program.parameters)
        self.expected = self.plain()
        pairs = zip(self.expected, self.plain(), strict=True)
        self.sure = [torch.equal(a, b) for a, b in pairs]
        self.graph = self.counter.graph(program.loss)

    def plain(self) -> list[Tensor]:
        """The outcome without a budget."""
        self.set_back()
        return outcome(self.program, step(self.program.loss))

    def set_back(self) -> None:
        """Buffers are as before the first run."""
        if self.program.model is not None:
            self.program.model.load_state_dict(self.before)

    def row(self, budget: Budget) -> tuple[Any, ...]:
        """The most bytes in some runs, and what was wrong."""
        memory, options = budget.memory, budget.options
        given = options if memory is None else {"memory": memory, **options}
        run, most, wrong = retape.torch.recompute(**given), 0, ""
        under = run(self.program.loss)
        for number in range(2 if memory is None else RUNS):
            self.set_back()
            values: list[Tensor] = []
            try:
                peak = self.counter.peak(lambda v=values: v.append(step(under)))
            except (BudgetError, MachineError) as error:
                least = getattr(error, "least", None)
                wrong += f"REFUSED in run {number} ({type(error).__name__}, {least}) "
                outcome(self.program, torch.zeros(()))
                continue
            most = max(most, peak - self.graph)
            got = outcome(self.program, values.pop())
            found = zip(got, self.expected, self.sure, strict=True)
            if not all(torch.equal(a, b) for a, b, sure in found if sure):
                wrong += "NOT THE SAME "
        if memory is not None and most > memory > SMALL:
            wrong += "OVER"
        again = ""
        record = 0
        if not wrong.startswith("REFUSED"):
            again = f"{run.report.recomputed} of {run.report.steps}"
            record = run.report.bookkeeping_bytes or 0
        size = memory and memory / 1e6
        return budget.name, size, most / 1e6, record / 1e6, again, wrong.strip()


def main() -> None:
    own = {f"our-{name}": make for name, make in programs.SMALL.items()}
    table = {**own, **others.models(), **cuda_programs.PROGRAMS}
    assert len(table) == len(own) + len(others.models()) + len(cuda_programs.PROGRAMS)
    given = asked(__doc__, table, accelerate=False, quick={"names": ["our-fft"]})
    if given.names == list(table) and not ON_CUDA:
        given.names = [name for name in table if name not in cuda_programs.PROGRAMS]
    start_under_the_counter()
    stay_reproducible()
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if given.accelerate:
        retape.torch.accelerate()
    printed, count, bad = Table(*COLUMNS), 0, 0
    for name in given.names:
        torch.manual_seed(0)
        gc.freeze()  # what is there by now need not be looked through each time
        try:
            with torch.device(DEVICE):
                program = table[name]()
            runs = Runs(program)
            for budget in [*budgets(runs.program)]:
                cells = runs.row(budget)
                printed.row(name, *cells)
                count, bad = count + 1, bad + bool(cells[-1])
        except Exception as error:
            bad += 1
            why = f"{type(error).__name__}: {str(error)[:200]}"
            printed.row(name, "", None, None, None, None, why)
    print(f"{count} rows, of which {bad} exceeded, refused, not the same or failed")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
