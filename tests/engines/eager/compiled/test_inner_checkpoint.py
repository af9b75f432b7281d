from functools import partial
from math import inf

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as pytorch_checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts

import retape.torch
from tests.engines.eager.compiled.joints import mlp


class Blocks(nn.Module):
    """Blocks, each called in one way or another."""

    def __init__(self, call, form):
        super().__init__()
        torch.manual_seed(0)
        blocks = [self.block() for _ in range(2)]
        self.blocks = nn.ModuleList(form(each) for each in blocks)
        self.call = call

    def block(self):
        return nn.Sequential(mlp(2), nn.Dropout(0.25), nn.BatchNorm1d(8))

    def forward(self, x):
        for block in self.blocks:
            x = self.call(block, x)
        return x.square().sum()


def plainly(block, x):
    return block(x)


def as_it_is(block):
    return block


def kept(block):
    return retape.torch.Checkpointed(block, policy=[torch.ops.aten.addmm.default])


def run(call, form, compiled, **options):
    """Loss, gradients and buffers, and the bytes that the forward saves."""
    torch._dynamo.reset()
    model = Blocks(call, form)
    saved = {}

    def pack(tensor):
        if not any(tensor is each for each in model.parameters()):
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    step = torch.compile(model, backend="aot_eager", **options) if compiled else model
    x = torch.linspace(-1, 1, 4096).view(512, 8)
    step(x.clone())  # compiles; hooks are not for it
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = step(x)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters()), *model.buffers()]
    return found, sum(saved.values())


def over_a_break(block, x):
    torch._dynamo.graph_break()
    return retape.torch.checkpoint(block, x)


SOME = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
PYTORCH = partial(pytorch_checkpoint, use_reentrant=False)
PLAIN = (plainly, as_it_is)
# Ours, what is as exact, and the least and most share of what that saves.
WAYS = {
    "module": ((plainly, retape.torch.Checkpointed), (PYTORCH, as_it_is), 1.0, 1.0),
    "policy": (
        (plainly, kept), (partial(PYTORCH, context_fn=SOME), as_it_is), 1.0, 1.0,
    ),
    "function": ((retape.torch.checkpoint, as_it_is), PLAIN, 0.0, 0.8),
    "over a break": ((over_a_break, as_it_is), PLAIN, 0.0, inf),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("way", WAYS)
def test_inside_of_a_compiled_model_it_is_exact_and_saves_as_pytorchs_own(way):
    ours, theirs, least, most = WAYS[way]
    whole = way != "over a break"
    found, nbytes = run(*ours, compiled=True, fullgraph=whole)
    plain, its = run(*theirs, compiled=True, fullgraph=whole)
    assert all(map(torch.equal, found, plain)) and len(found) == len(plain)
    assert least * its <= nbytes <= most * its
