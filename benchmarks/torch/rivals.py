"""The ways to run a workload: plain, by hand, and under Retape."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from benchmarks.torch.allocator import ON_CUDA
from benchmarks.torch.workloads import Workload, plainly
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import retape.torch

State = tuple[Tensor, ...]
# Plans are made after one or two runs; one that has to be made again, in the next few.
RUNS_TO_LEARN = 5


def chain(blocks: Iterable[Callable[..., State]], state: State) -> State:
    for block in blocks:
        state = block(*state)
    return state


def parts(blocks: Sequence[Any], count: int) -> list[Sequence[Any]]:
    size = -(-len(blocks) // count)
    return [blocks[k : k + size] for k in range(0, len(blocks), size)]


def by_hand(function: Callable[..., State], state: State) -> State:
    return checkpoint(function, *state, use_reentrant=False)


def plain(work: Workload) -> Tensor:
    return plainly(work)[0]()


def per_block(work: Workload) -> Tensor:
    return by_parts(work, len(work.blocks))


def saved_on_cpu(work: Workload) -> Tensor:
    """All that autograd saves in page-locked memory of the host."""
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        return plain(work)


def by_parts(work: Workload, count: int) -> Tensor:
    """What `checkpoint_sequential` does: all parts but the last are checkpointed."""
    state = work.start
    groups = parts(work.blocks, count)
    for k, group in enumerate(groups):
        if k + 1 == len(groups) and count < len(work.blocks):
            state = chain(group, state)
        else:
            state = by_hand(lambda *s, g=group: chain(g, s), state)
    return work.loss(*state)


def nested(work: Workload, outer: int, inner: int) -> Tensor:
    def run_group(group: Sequence[Any], state: State) -> State:
        for part in parts(group, inner):
            state = by_hand(lambda *s, p=part: chain(p, s), state)
        return state

    state = work.start
    for group in parts(work.blocks, outer):
        state = by_hand(lambda *s, g=group: run_group(g, s), state)
    return work.loss(*state)


def ours(work: Workload, **options: Any) -> Tensor:
    with retape.torch.recompute(**options):
        return plain(work)


def chained(work: Workload, memory: int) -> Tensor:
    """`checkpoint_sequential` of ours, measured at the first call.

    The loss is the last function of the chain: a rival's peak has it in, too.
    """
    functions = [lambda s, f=f: f(*s) for f in (*work.blocks, work.loss)]
    return retape.torch.checkpoint_sequential(
        functions, input=work.start, memory=memory
    )


def selective(work: Workload) -> Tensor:
    """PyTorch's selective policy: each block keeps its products of matrices."""

    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if retape.torch.matrix_products(func):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    state = work.start
    for block in work.blocks:
        state = checkpoint(
            block,
            *state,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
    return work.loss(*state)


def our_selective(work: Workload) -> Tensor:
    """The same policy in ours."""
    state = work.start
    for block in work.blocks:
        state = retape.torch.checkpoint(
            block, *state, policy=retape.torch.matrix_products
        )
    return work.loss(*state)


def step(work: Workload, forward: Callable[[Workload], Tensor]) -> Callable[[], None]:
    """One forward and backward, the same at random; on CUDA in bfloat16."""
    automatic = torch.autocast("cuda", torch.bfloat16, enabled=ON_CUDA)

    def job() -> None:
        torch.manual_seed(1)
        with automatic:
            loss = forward(work)
        loss.backward()
        if ON_CUDA:
            torch.cuda.synchronize()

    return job
