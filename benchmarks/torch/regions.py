"""Compiled blocks inside `recompute`: time and peak, against eager ones and plain.

    python benchmarks/torch/regions.py [gpt|vit ...] [--backend inductor|aot_eager]

Each block of a model is compiled. Rows are budgets, from the least that is not refused
to what an ample run takes; the peak is the allocator's, and `held` says whether it is
within the budget in each of four runs. Times are ratios to the plain compiled model.
"""

import argparse
import copy

import torch
from compiled import MODELS
from measure import peak_bytes, ready_gradients, seconds
from torch import Tensor, nn

import retape.torch

BUDGETS, RUNS = 6, 4


def step(model: nn.Module, x: Tensor) -> Tensor:
    loss = model(x)
    loss.backward()
    return loss


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def measured(model: nn.Module, x: Tensor, memory: int) -> tuple[int, float, float]:
    """The highest peak of some runs, the time of one, and what was run again."""
    run = retape.torch.recompute(memory=memory)
    peaks = []
    ready_gradients(list(model.parameters()))
    for _ in range(RUNS):
        peaks.append(peak_bytes(lambda: step_within(run, model, x)))
    took = seconds(lambda: step_within(run, model, x), repeats=5)
    return max(peaks), took, run.report.recomputed / run.report.steps


def step_within(run: object, model: nn.Module, x: Tensor) -> None:
    with run:  # type: ignore[attr-defined]
        loss = model(x)
    loss.backward()


def least(model: nn.Module, x: Tensor) -> int:
    try:
        step_within(retape.torch.recompute(memory=1), model, x)
    except retape.BudgetError as error:
        return error.least or 0
    raise SystemExit("one byte was enough")


def rows(name: str, backend: str) -> None:
    torch.manual_seed(0)
    eager, x = MODELS[name]()
    model = copy.deepcopy(eager)
    for block in model.blocks:  # type: ignore[union-attr]
        block.compile(backend=backend)
    torch._dynamo.reset()
    step(model, x)
    wanted = [g.clone() for g in gradients(model)]
    ready_gradients(list(model.parameters()))
    plain = peak_bytes(lambda: step(model, x))
    took = seconds(lambda: step(model, x), repeats=5)
    ample = retape.torch.recompute(memory="1TB")
    model.zero_grad(set_to_none=True)
    step_within(ample, model, x)
    same = all(map(torch.equal, wanted, gradients(model)))
    low, high = least(model, x), ample.report.peak_bytes
    print(f"{name}, {backend}: plain {plain:,} bytes, {took * 1e3:.1f} ms")
    print(f"  steps {ample.report.steps}; gradients bitwise: {same}")
    print("  budget      compiled: peak  held  time again | eager: peak   time again")
    for k in range(BUDGETS):
        memory = int(low * (high / low) ** (k / (BUDGETS - 1)))
        peak, time, again = measured(model, x, memory)
        line = f"  {memory:>10,} {peak:>14,} {'yes' if peak <= memory else 'NO':>5}"
        line += f" {time / took:>5.2f} {again:>5.2f} | "
        try:
            peak, time, again = measured(eager, x, memory)
            line += f"{peak:>11,} {time / took:>6.2f} {again:>5.2f}"
        except retape.BudgetError as error:
            line += f"needs {error.least:,}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="gpt, vit; both by default")
    parser.add_argument("--backend", default="inductor")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.models or ("gpt", "vit"):
        rows(name, options.backend)


if __name__ == "__main__":
    main()
