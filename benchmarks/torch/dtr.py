"""The rules of a first run, and plans, against dynamic tensor rematerialisation (DTR).

    python -m benchmarks.torch.dtr [MODEL ...]

DTR (Kirisame et al. 2021) has one rule: when bytes run out, the value goes whose cost
over its bytes and the time since it was used is least. Here it is simulated on the
operators of a step, with the bytes that autograd saves and the cotangents of its
backward, gradients of leaves left out as in our budgets. It is shown a budget and holds
nothing else: no record, no workspace of kernels. Costs are operators.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from benchmarks.harness import Table, asked
from benchmarks.torch.programs import MODELS, Program
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import retape.torch

SHARES = "0.9 0.7 0.5 0.35 0.25"


class Step(NamedTuple):
    """An operator: the storages that it reads, makes and has autograd save."""

    reads: list[int]
    makes: list[int]
    saves: set[int]


class Tape(TorchDispatchMode):
    """The operators of a forward; storages are held, so that none has two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.numbers: dict[int, int] = {}
        self.nbytes: list[int] = []
        self.held: list[Any] = []

    def number(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.numbers:
            self.numbers[storage._cdata] = len(self.nbytes)
            self.nbytes.append(storage.nbytes())
            self.held.append(storage)
        return self.numbers[storage._cdata]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [self.number(t) for t in tree_leaves((args, kwargs)) if _is(t)]
        known = len(self.nbytes)
        result = func(*args, **(kwargs or {}))
        made = [self.number(t) for t in tree_leaves(result) if _is(t)]
        if new := [number for number in made if number >= known]:
            self.steps.append(Step(given, new, set()))
        return result

    def save(self, tensor: Tensor) -> Tensor:
        """Autograd saves operands before an operator runs, and results after it."""
        self.saved.append((len(self.steps), self.number(tensor)))
        return tensor

    def recorded(self, loss: Callable[[], Tensor]) -> list[Step]:
        self.saved: list[tuple[int, int]] = []
        hooks = torch.autograd.graph.saved_tensors_hooks(self.save, lambda t: t)
        with hooks, self:
            loss()
        for place, number in self.saved:
            before = place and number in self.steps[place - 1].makes
            self.steps[place - before if place < len(self.steps) else -1].saves.add(
                number
            )
        return self.steps


def _is(value: object) -> bool:
    return isinstance(value, Tensor)


class Simulation:
    """One step under DTR's rule; `again` counts operators that are run again."""

    def __init__(self, steps: list[Step], nbytes: list[int], budget: int) -> None:
        self.steps, self.nbytes, self.budget = steps, nbytes, budget
        self.maker = {made: k for k, step in enumerate(steps) for made in step.makes}
        self.used: dict[int, int] = {}  # what is there, with the time of its last use
        self.live = self.peak = self.again = self.clock = self.waiting = 0
        saved = set().union(*(step.saves for step in steps))
        last = {number: k for k, step in enumerate(steps) for number in step.reads}
        for k, step in enumerate(steps):
            self.run(k, set(step.reads))
            for number in {*step.reads, *step.makes} - saved:
                if last.get(number, -1) <= k:  # the program lets it go
                    self.drop(number)
        self.reverse(last)

    def reverse(self, last: dict[int, int]) -> None:
        """Each operator needs what it has saved, while its cotangents wait."""
        for k in reversed(range(len(self.steps))):
            step = self.steps[k]
            self.waiting += sum(self.size(n) for n in step.reads if last[n] == k)
            for number in step.saves:
                self.need(number, step.saves)
            self.make_room(0, step.saves)
            for number in step.makes:
                self.waiting -= self.nbytes[number]
                self.drop(number)

    def size(self, number: int) -> int:
        return self.nbytes[number] if number in self.maker else 0

    def need(self, number: int, locked: set[int]) -> None:
        if number not in self.used and number in self.maker:
            step = self.steps[self.maker[number]]
            for each in step.reads:
                self.need(each, {*locked, *step.reads})
            self.run(self.maker[number], {*locked, *step.reads})
            self.again += 1
        self.clock += 1
        if number in self.used:
            self.used[number] = self.clock

    def run(self, k: int, locked: set[int]) -> None:
        new = [number for number in self.steps[k].makes if number not in self.used]
        self.make_room(sum(self.nbytes[number] for number in new), locked)
        for number in new:
            self.clock += 1
            self.used[number] = self.clock
            self.live += self.nbytes[number]
        self.peak = max(self.peak, self.live + max(0, self.waiting))

    def make_room(self, nbytes: int, locked: set[int]) -> None:
        while self.live + nbytes + max(0, self.waiting) > self.budget:
            free = [number for number in self.used if number not in locked]
            if not free:
                break  # it does not fit: the peak says so
            self.drop(min(free, key=self.price))
        self.peak = max(self.peak, self.live + nbytes + max(0, self.waiting))

    def price(self, number: int) -> float:
        return 1 / (max(1, self.nbytes[number]) * (self.clock - self.used[number] + 1))

    def drop(self, number: int) -> None:
        if self.used.pop(number, None) is not None:
            self.live -= self.nbytes[number]


def run_again(program: Program, memory: int, runs: int) -> float | str:
    """The share of operators that `recompute` runs again in the last of some runs."""
    run = retape.torch.recompute(memory=memory)
    try:
        for _ in range(runs):
            run(program.loss)().backward()
    except retape.BudgetError:
        return "refused"
    return run.report.recomputed / run.report.steps


def main() -> None:
    quick = {"names": ["unet"], "shares": "0.5"}
    given = asked(__doc__, MODELS, quick, shares=SHARES)
    sys.setrecursionlimit(100_000)
    table = Table("", "of plain", "DTR", "rules", "plan")
    for name in given.names:
        program = MODELS[name](False)
        with retape.torch.recompute(memory="4GB") as run:
            program.loss().backward()
        plain, tape = run.report.peak_bytes, Tape()
        steps = tape.recorded(program.loss)
        for share in map(float, given.shares.split()):
            memory = int(share * plain)
            made = Simulation(steps, tape.nbytes, memory)
            dtr = made.again / len(steps) if made.peak <= memory else "does not fit"
            found = [run_again(program, memory, runs) for runs in (1, 3)]
            table.row(name, share, dtr, *found)


if __name__ == "__main__":
    main()
