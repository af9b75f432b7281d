"""A GPT under FSDP2 in ten budgets, each of one process: held, and the same to the bit?

    python -m benchmarks.torch.sharded [--layers 12] [--processes 2] [--budgets 10]

For each budget, from the least to one in which all fits, and each process: the peak
that the run itself counted; operators run again over those recorded; whether loss and
gradients have the bits of the plain run.
"""

import contextlib
import os
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.harness import Table, asked
from benchmarks.torch.programs import First, WithLoss, next_words
from benchmarks.torch.workloads import GPTBlock
from torch import Tensor, nn

import retape.torch
from retape._errors import BudgetError

WORDS = 64


Row = tuple[int, int, float, bool]
"""A budget, the peak that its runs counted, what was run again, and the same bits?"""


def sharded(layers: int, width: int) -> Any:
    """The model, each block a unit whose parameters are gathered when it is run."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = [First(GPTBlock(width, 4)) for _ in range(layers)]
    for block in blocks:
        fully_shard(block, mesh=mesh)
    net = nn.Sequential(nn.Embedding(WORDS, width), *blocks, nn.Linear(width, WORDS))
    return fully_shard(WithLoss(net, next_words), mesh=mesh)


def step(model: Any, text: Tensor, under: Any) -> Tensor:
    """Forward and backward on new gradients; the loss."""
    torch.manual_seed(1)
    with under:
        loss = model(text)
    loss.backward()
    return loss.detach()


def bits(model: Any, text: Tensor, under: Any) -> list[Tensor]:
    """The loss and this process's parts of the gradients of one step."""
    model.zero_grad()
    loss = step(model, text, under)
    return [loss, *(p.grad.to_local().clone() for p in model.parameters())]


def least(model: Any, text: Tensor) -> int:
    """The least budget that an error names in any process, for all to go on alike."""
    found = 0
    try:
        with retape.torch.recompute(memory=1):
            loss = model(text)
    except BudgetError as error:
        found = error.least or 0
    loss.backward()
    return found


def measure(layers: int, width: int, length: int, count: int, runs: int) -> list[Row]:
    """A row for each budget of this process."""
    torch.set_num_threads(1)
    model = sharded(layers, width)
    torch.manual_seed(2 + dist.get_rank())
    # Each process has a length of its own, and so budgets of its own.
    text = torch.randint(0, WORDS, (4, length + 8 * dist.get_rank()))
    plain = bits(model, text, contextlib.nullcontext())
    ample = retape.torch.recompute(memory="1GB")
    step(model, text, ample)
    low, whole, rows = least(model, text), ample.report.peak_bytes, list[Row]()
    for k in range(count):
        budget = low + max(0, whole - low) * k // max(1, count - 1)
        run = retape.torch.recompute(memory=budget)
        same, peak = True, 0
        for _ in range(runs):
            same &= all(map(torch.equal, plain, bits(model, text, run)))
            peak = max(peak, run.report.peak_bytes)
        again = run.report.recomputed / run.report.steps
        rows.append((budget, peak, again, same))
    return rows


def _work(rank: int, world: int, folder: str, sizes: tuple[int, ...]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    torch.save(measure(*sizes), f"{folder}/{rank}")
    dist.destroy_process_group()


def sweep(
    layers: int = 12, width: int = 128, length: int = 96, budgets: int = 10,
    processes: int = 2, runs: int = 3,
) -> list[list[Row]]:  # fmt: skip
    """The rows of each process."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = layers, width, length, budgets, runs
        torch.multiprocessing.spawn(_work, (processes, folder, sizes), processes)
        return [
            torch.load(f"{folder}/{rank}", weights_only=False)
            for rank in range(processes)
        ]


def main() -> None:
    options = {"layers": 12, "processes": 2, "budgets": 10}
    given = asked(__doc__, quick={"layers": 2, "budgets": 2}, **options)
    found = sweep(given.layers, budgets=given.budgets, processes=given.processes)
    table = Table("process", "budget MB", "peak MB", "again", "bits", "held")
    for rank, rows in enumerate(found):
        for budget, peak, again, same in rows:
            held = "yes" if peak <= budget else "OVER"
            bits = "same" if same else "OTHER"
            table.row(rank, budget / 1e6, peak / 1e6, again, bits, held)


if __name__ == "__main__":
    main()
