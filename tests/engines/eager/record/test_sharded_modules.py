"""Fully sharded modules: FSDP2 inside and around a recomputation, FSDP1 around one."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)

import retape.torch
from retape import BudgetError, UnsupportedError
from tests.engines.eager.support.processes import run_in_turn

WIDTH, LAYERS = 16, 3


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, 2, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True
    )


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(32, WIDTH), nn.Linear(WIDTH, 32)
        self.blocks = nn.ModuleList([block() for _ in range(LAYERS)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x)
        for block in self.blocks:
            h = block.run(h) if hasattr(block, "run") else block(h)
        return self.head(h)


def sharded(form: str) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    policy = half if form == "mixed precision" else MixedPrecisionPolicy()
    torch.manual_seed(0)
    model: Any = Model()
    if form == "regions":
        blocks = [retape.torch.Checkpointed(block) for block in model.blocks]
        model.blocks = nn.ModuleList(blocks)
    for block in model.blocks:
        if form == "nested":
            fully_shard([block.linear1, block.linear2], mesh=mesh, mp_policy=policy)
        gathered = form != "kept gathered"
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=gathered)
        if form == "methods":
            block.run = block.forward
            register_fsdp_forward_method(block, "run")
    if form == "regions of units":
        blocks = [retape.torch.Checkpointed(block) for block in model.blocks]
        model.blocks = nn.ModuleList(blocks)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if form == "prefetch":
        for block, after in zip(model.blocks, model.blocks[1:], strict=False):
            block.set_modules_to_forward_prefetch([after])
            after.set_modules_to_backward_prefetch([block])
    return model


def train(form: str, make: Callable[[], Any], steps: int = 2) -> tuple[Any, Any]:
    """Losses and gradients of some steps, and the reports of their runs."""
    model, found, reports = sharded(form), [], []
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(steps):
        # Each process has batches of its own length.
        torch.manual_seed(10 * step + dist.get_rank())
        x = torch.randint(0, 32, (2, 6 + 2 * dist.get_rank()))
        under = make()
        with under:
            logits = model(x).flatten(0, 1).float()
            loss = F.cross_entropy(logits, x.flatten())
            if form == "backward inside":
                loss.backward()
        if form != "backward inside":
            loss.backward()
        found += [loss.detach()]
        found += [p.grad.full_tensor().clone() for p in model.parameters()]  # type: ignore[union-attr]
        optimiser.step()
        optimiser.zero_grad()
        reports.append(getattr(under, "report", None))
    return found, reports


def _least(form: str) -> int:
    model = sharded(form)
    try:
        with retape.torch.recompute(memory=100):
            loss = model(
                torch.zeros(2, 6 + 2 * dist.get_rank(), dtype=torch.long)
            ).sum()
    except BudgetError as error:
        loss.backward()
        return error.least
    raise AssertionError("a hundred bytes were enough")


FORMS = "resharded", "kept gathered", "mixed precision", "nested", "prefetch", "methods"
SHARES = 1.0, 1.2, 1.5, 2.0, 100.0


def _wrong_in(form: str, shares: Sequence[float] = (1.0, 100.0)) -> list[str]:
    wrong: list[str] = []
    plain, _ = train(form, contextlib.nullcontext)
    least, counts = _least(form), []
    for share in shares:
        memory = int(share * least)
        found, reports = train(form, lambda: retape.torch.recompute(memory=memory))  # noqa: B023
        if not all(map(torch.equal, plain, found)):
            wrong.append(f"{form} in {share}: other gradients")
        if any(report.peak_bytes > memory for report in reports):
            wrong.append(f"{form} in {share}: {reports}")
        counts.append(reports[-1].recomputed)
    if not counts[0] or counts[-1] or reports[-1].steps < 15 * LAYERS:
        wrong.append(f"{form}: {counts}, {reports[-1]}")
    found, _ = train(form, lambda: retape.torch.recompute(snapshots=2, stage=4))
    if not all(map(torch.equal, plain, found)):
        wrong.append(f"{form} by snapshots: other gradients")
    return wrong


def _in_budgets() -> list[str]:
    """What is not as it is without a budget; each process has a budget of its own."""
    wrong = _wrong_in(FORMS[0], SHARES)
    for form in FORMS[1:]:
        wrong += _wrong_in(form)
    plain, _ = train("resharded", contextlib.nullcontext)
    for form in ("regions", "regions of units"):
        found, _ = train(form, contextlib.nullcontext)
        if not all(map(torch.equal, plain, found)):
            wrong.append(f"{form}: other gradients")
    for budget in ({"memory": 2 * _least("resharded")}, {"snapshots": 1}):
        found, _ = train("backward inside", lambda: retape.torch.recompute(**budget))  # noqa: B023
        if not all(map(torch.equal, plain, found)):
            wrong.append(f"backward inside of {budget}: other gradients")
    return wrong


def _gathered() -> list[str]:
    """Forms whose report says another number of gathered bytes than there are."""
    wrong = []
    for form in ("resharded", "kept gathered", "mixed precision", "prefetch"):
        model = sharded(form)
        with retape.torch.recompute(memory="1GB") as run:
            loss = model(torch.zeros(1, 1, dtype=torch.long)).float().sum()
        loss.backward()
        width = 2 if form == "mixed precision" else 4
        whole = width * sum(p.numel() for p in model.parameters())
        if run.report.sharding_bytes != whole:
            wrong.append(f"{form}: {run.report.sharding_bytes} of {whole}")
    return wrong


def _flat_gradients(wrapped: bool, under: Any) -> list[Tensor]:
    torch.manual_seed(0)
    units: list[nn.Module] = [
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3)
    ]
    if wrapped:
        units = [retape.torch.Checkpointed(unit) for unit in units]
    flat = partial(FullyShardedDataParallel, device_id=torch.device("cpu"))
    model = flat(nn.Sequential(*map(flat, units)))
    with under:
        loss = model(torch.ones(4, 8) * (1 + dist.get_rank())).square().sum()
    loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def _flat_around() -> list[str]:
    """FSDP1 around regions."""
    plain = _flat_gradients(False, contextlib.nullcontext())
    found = _flat_gradients(True, contextlib.nullcontext())
    same = len(plain) == len(found) and all(map(torch.equal, plain, found))
    return [] if same else ["other gradients around regions"]


def _flat_inside() -> list[str]:
    with pytest.raises(UnsupportedError) as caught:
        _flat_gradients(False, retape.torch.recompute(memory="1MB"))
    names = "FullyShardedDataParallel` (FSDP1)", "torch.distributed.fsdp.fully_shard`"
    return [name for name in names if name not in str(caught.value)]


JOBS: dict[str, tuple[Callable[..., list[str]], tuple[Any, ...]]] = {
    "budgets": (_in_budgets, ()),
    "what is gathered is said": (_gathered, ()),
    "flat parameters around": (_flat_around, ()),
    "flat parameters inside": (_flat_inside, ()),
}


@pytest.fixture(scope="module")
def in_two() -> Any:
    """What is wrong in two processes, which do all jobs one after the other."""
    return run_in_turn(2, **JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_fully_sharded_modules_keep_a_budget_in_each_process(
    job: str, in_two: Any
) -> None:
    assert in_two[job] == [[], []]
