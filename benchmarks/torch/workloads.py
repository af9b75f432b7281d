"""The programs that are measured, each as blocks that can be checkpointed by hand."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Workload:
    """A model as a chain of blocks; `state` goes from each block to the next."""

    name: str
    blocks: list[Callable[..., tuple[Tensor, ...]]]
    parameters: list[Tensor]
    start: tuple[Tensor, ...]
    loss: Callable[..., Tensor]


def plainly(work: Workload) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """Its loss, and what gets gradients."""

    def loss() -> Tensor:
        state = work.start
        for block in work.blocks:
            state = block(*state)
        return work.loss(*state)

    return loss, work.parameters


def mlp(layers: int = 100, width: int = 384, batch: int = 1024) -> Workload:
    torch.manual_seed(0)
    stack = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
    # The usual scale decays to subnormal numbers, which are ten times as slow.
    for layer in stack:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def block(layer: nn.Module) -> Callable[[Tensor], tuple[Tensor]]:
        return lambda x: (F.relu(layer(x)),)

    return Workload(
        "MLP-100", [block(layer) for layer in stack], list(stack.parameters()),
        (torch.randn(batch, width),), lambda x: x.square().mean(),
    )  # fmt: skip


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(
            torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1), float("-inf")
        )
        weights = F.dropout(scores.softmax(-1), 0.1)
        mixed = (weights @ v).transpose(1, 2).reshape(b, t, c)
        x = x + F.dropout(self.out(mixed), 0.1)
        return (x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1),)


def gpt(
    layers: int = 24, width: int = 256, batch: int = 4, length: int = 192
) -> Workload:
    torch.manual_seed(0)
    stack = nn.ModuleList(GPTBlock(width, 8) for _ in range(layers))
    head = nn.Linear(width, 512)
    target = torch.randint(0, 512, (batch * length,))

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(head(x).flatten(0, 1), target)

    return Workload(
        "GPT-24", list(stack), [*stack.parameters(), *head.parameters()],
        (torch.randn(batch, length, width),), loss,
    )  # fmt: skip


def lstm(steps: int = 2000, width: int = 128, batch: int = 16) -> Workload:
    torch.manual_seed(0)
    cell = nn.LSTMCell(32, width)
    inputs = torch.randn(steps, batch, 32)

    def block(t: int) -> Callable[..., tuple[Tensor, Tensor]]:
        return lambda h, c: cell(inputs[t], (h, c))

    zero = torch.zeros(batch, width)
    return Workload(
        "LSTM-2000", [block(t) for t in range(steps)], list(cell.parameters()),
        (zero, zero), lambda h, c: h.square().mean() + c.mean(),
    )  # fmt: skip


def llama(layers: int = 12, width: int = 256, length: int = 256) -> Workload:
    """A Llama of the transformers library, from its configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=688,
        num_attention_heads=8, num_key_value_heads=4, vocab_size=512, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    text = torch.randint(0, 512, (2, length))
    inner = model.model
    places = torch.arange(length)[None]
    rotation = inner.rotary_emb(torch.zeros(1, 1, width), places)

    def block(layer: nn.Module) -> Callable[..., tuple[Tensor]]:
        def run(x: Tensor) -> tuple[Tensor]:
            y = layer(x, position_embeddings=rotation, position_ids=places)
            return (y[0] if isinstance(y, tuple) else y,)

        return run

    def embed(text: Tensor) -> tuple[Tensor]:
        return (inner.embed_tokens(text),)

    def loss(x: Tensor) -> Tensor:
        logits = model.lm_head(inner.norm(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())

    return Workload(
        f"Llama-{layers}, transformers", [embed, *map(block, inner.layers)],
        list(model.parameters()), (text,), loss,
    )  # fmt: skip


WORKLOADS = {"mlp": mlp, "gpt": gpt, "lstm": lstm, "llama": llama}
SMALL: dict[str, Callable[[], Workload]] = {
    "mlp": lambda: mlp(40, 64, 512),
    "gpt": lambda: gpt(4, 64, 2, 64),
    "lstm": lambda: lstm(60, 32, 8),
    "llama": lambda: llama(3, 64, 64),
}
"""Of each a form that is done in a second."""
ON_CUDA: dict[str, Callable[[], Workload]] = {
    "mlp": lambda: mlp(100, 4096, 8192),
    "gpt": lambda: gpt(24, 1024, 4, 1024),
    "llama": lambda: llama(16, 2048, 2048),
    "lstm": lambda: lstm(200, 512, 64),
}
"""Of each a form that fills a GPU of 80 GB, or its launches: the LSTM's are tiny."""
