"""Models of others, exact and within budgets that the library names, by the whole heap.

    python -m benchmarks.torch.families [--accelerate] [gpt2|llama|vit|odeint ...]

Small models of `transformers`, `torchdiffeq`, and of `timm` and `torch_geometric` where
these are installed. The budgets are those that a user is told: of `estimate` the
least, the sensible one and half of the way to all of it; the least of the error of a
smaller one; what an ample run says that it took. For each it prints the most of the
heap in runs 0 to 6, planning included, as `heap.py` counts it, with `+` where that is
more than a budget above a megabyte, REFUSED with the run in which that was, and NOT THE
SAME where gradients are not those of the plain run to the last bit. Last come two runs
with `verify=True`, which must raise no alarm.
"""

import gc
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.torch.allocator import DEVICE, ON_CUDA, peak_bytes
from benchmarks.torch.heap import _MARK, RUNS, Heap, count_heap, own_graph
from torch import Tensor, nn

import retape.torch
from retape import BudgetError, MachineError, UnsupportedError

Loss = Callable[[], Tensor]
Made = tuple[nn.Module, Loss]
_SMALL = 10**6
# Whatever name a family has for them: wide enough for some megabytes.
_SIZES: dict[str, Any] = {
    "hidden_size": 64, "n_embd": 64, "d_model": 64, "dim": 64, "n_layer": 4,
    "num_hidden_layers": 4, "n_layers": 4, "num_layers": 4, "encoder_layers": 2,
    "decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "d_ff": 128, "ffn_dim": 128,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "hidden_dim": 128,
    "vocab_size": 128, "max_position_embeddings": 64, "n_positions": 64, "d_kv": 16,
    "head_dim": 16, "embedding_size": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "use_cache": False, "num_local_experts": 4, "state_size": 8,
    "num_experts": 4, "image_size": 64, "patch_size": 8, "word_embed_proj_dim": 64,
    "max_target_positions": 64, "moe_intermediate_size": 32, "time_step_rank": 4,
    "lm_head_bias": False, "decoder_start_token_id": 0, "n_routed_experts": 4,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "qk_nope_head_dim": 8, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1, "shared_expert_intermediate_size": 32, "rotary_dim": 8,
}  # fmt: skip
LANGUAGE = """
    GPT2 Llama Mistral Qwen2 Qwen3 Phi Phi3 Gemma Gemma2 OPT Bloom GPTNeoX GPTJ Falcon
    Mamba Mixtral Qwen2Moe DeepseekV3 Olmo Starcoder2 Granite StableLm Cohere
""".split()
MASKED = "Bert Roberta DistilBert Electra Albert DebertaV2 MPNet RoFormer".split()
PAIRED = "T5 Bart Pegasus Marian".split()
IMAGES = "ViT DeiT Swin ConvNext ResNet Beit".split()


def _config(transformers: Any, name: str) -> Any:
    """A small configuration of a family, by the names that it has for its sizes."""
    make = getattr(transformers, f"{name}Config")
    known = make().to_dict()
    sizes = _SIZES
    if "qk_rope_head_dim" in known:  # the part of a head that is turned
        sizes = {**_SIZES, "head_dim": _SIZES["qk_rope_head_dim"]}
    if "kv_lora_rank" in known:  # each head has its keys, from the one latent
        sizes = {**sizes, "num_key_value_heads": _SIZES["num_attention_heads"]}
    return make(
        **{
            key: size
            for key, size in sizes.items()
            if key in known and not isinstance(known[key], list | tuple)
        }
    )


def _text(name: str, suffix: str, decoder: bool = False) -> Made:
    import transformers

    model = getattr(transformers, name + suffix)(_config(transformers, name)).train()
    text = torch.randint(3, 128, (4, 48))
    more = {"decoder_input_ids": text} if decoder else {}
    if hasattr(model, "set_experts_implementation"):  # the quick one takes half numbers
        model.set_experts_implementation("eager")
    return model, lambda: model(input_ids=text, labels=text, **more).loss


def _image(name: str) -> Made:
    import transformers

    config = _config(transformers, name)
    if name == "Swin":  # four halvings, and windows of seven
        config.image_size, config.patch_size = 224, 4
    model = getattr(transformers, name + "Model")(config).train()
    size = getattr(config, "image_size", 64)
    images = torch.randn(4, 3, size, size)
    return model, lambda: model(images).last_hidden_state.square().mean()


class Field(nn.Module):
    """The right-hand side of a differential equation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y) * torch.cos(t)


def _ode(method: str) -> Made:
    from torchdiffeq import odeint

    field, y, times = Field(), torch.randn(256, 32), torch.linspace(0, 2, 6)
    options: dict[str, Any] = {}
    if method in ("euler", "rk4"):
        options["options"] = {"step_size": 0.1}
    if method == "adaptive_heun":  # at the 1e-7 of the others its graph takes gigabytes
        options |= {"rtol": 1e-4, "atol": 1e-4}
    return (
        field,
        lambda: odeint(field, y, times, method=method, **options).square().mean(),
    )


def _timm(name: str) -> Made:
    import timm

    model = timm.create_model(name, num_classes=10).train()
    images = torch.randn(
        2, 3, 224 if "vit" in name else 64, 224 if "vit" in name else 64
    )
    return model, lambda: model(images).square().mean()


def _graph(name: str) -> Made:
    from torch_geometric import nn as layers

    make = getattr(layers, name)
    parts = nn.ModuleList(make(64, 64) for _ in range(4))
    x, edges = torch.randn(500, 64), torch.randint(0, 500, (2, 4000))

    def loss() -> Tensor:
        seen = x
        for part in parts:
            seen = torch.relu(part(seen, edges)) + seen
        return seen.square().mean()

    return parts, loss


def models() -> dict[str, Callable[[], Made]]:
    """All of them by name; what is not installed is left out."""
    found: dict[str, Callable[[], Made]] = {}
    for name in LANGUAGE:
        suffix = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
        found[name] = lambda n=name, s=suffix: _text(n, s)
    for name in MASKED:
        found[name] = lambda n=name: _text(n, "ForMaskedLM")
    for name in PAIRED:
        suffix = "MTModel" if name == "Marian" else "ForConditionalGeneration"
        found[name] = lambda n=name, s=suffix: _text(n, s, decoder=True)
    found |= {name: lambda n=name: _image(n) for name in IMAGES}
    for method in ("euler", "rk4", "dopri5", "adaptive_heun"):
        found[method] = lambda m=method: _ode(m)
    if importlib.util.find_spec("timm"):
        for name in ("resnet18", "mobilenetv3_small_100", "vit_tiny_patch16_224"):
            found[name] = lambda n=name: _timm(n)
    if importlib.util.find_spec("torch_geometric"):
        for name in ("GCNConv", "GATConv", "SAGEConv", "GraphConv"):
            found[name] = lambda n=name: _graph(n)
    return {name.lower(): make for name, make in found.items()}


def train(model: nn.Module, loss: Loss) -> Tensor:
    """One run from a fixed seed; gradients are there before."""
    torch.manual_seed(1)
    value = loss()
    value.backward()
    return value.detach()


def outcome(model: nn.Module, run: Callable[[], Tensor]) -> list[Tensor]:
    """Its loss and gradients, copied; they are zero again."""
    value = run()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    copies = [value, *(each.clone() for each in found)]
    for each in found:
        each.zero_()
    return copies


def budgets(model: nn.Module, loss: Loss) -> Iterator[tuple[str, int]]:
    """What the library says is enough, and who says so."""
    run = retape.torch.recompute(memory="10GB")
    outcome(model, lambda: train(model, run(loss)))
    ample, least = run.report.peak_bytes, _least(loss)
    try:
        found = retape.torch.estimate(loss)
        yield from (("least", found.least), ("sensible", found.sensible))
        yield "half", (found.least + found.enough) // 2
    except UnsupportedError:  # it reads values: an error and a report say as much
        yield "half", (least + ample) // 2
    yield from (("error", least), ("ample", ample))


def _least(loss: Loss) -> int:
    try:
        retape.torch.recompute(memory=1)(loss)()
    except BudgetError as error:
        return error.least or 1
    return 1


@dataclass
class Row:
    """What runs 0 to 6 in a budget came to."""

    name: str
    budget: int
    most: int = 0
    same: bool = True
    refused: str = ""

    def bad(self) -> bool:
        return bool(self.refused) or not self.same or self.most > self.budget > _SMALL

    def __str__(self) -> str:
        over = "+" if self.most > self.budget > _SMALL else " "
        text = f" {self.name} {self.budget / 1e6:.2f}: {self.most / 1e6:.2f}{over}"
        text = text if self.budget else f" {self.name}"
        return text + ("" if self.same else " NOT THE SAME") + self.refused


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if ON_CUDA:  # sums by atomic operations are not the same twice
        torch.use_deterministic_algorithms(True, warn_only=True)
    if "--accelerate" in arguments:
        retape.torch.accelerate()
    heap, table = OnCuda() if ON_CUDA else Heap(), models()
    count = bad = 0
    for name in [each for each in arguments if each in table] or list(table):
        torch.manual_seed(0)
        print(f"{name:24}", end="", flush=True)
        gc.freeze()  # what is there by now need not be looked through each time
        try:
            with torch.device(DEVICE):
                made = table[name]()
            for row in rows(heap, *made):
                print(row, end="", flush=True)
                count, bad = count + 1, bad + row.bad()
        except Exception as error:
            bad += 1
            print(f" {type(error).__name__}: {str(error)[:200]}", end="")
        print()
    print(f"{count} rows, of which {bad} exceeded, refused, not the same or failed")


class OnCuda(Heap):
    """The caching allocator's numbers, in place of the heap's."""

    def __init__(self) -> None:
        self.live = torch.cuda.memory_allocated

    def peak(self, job: Callable[[], object]) -> int:
        """The most bytes at once, beyond those before."""
        return peak_bytes(job)


def rows(heap: Heap, model: nn.Module, loss: Loss) -> Iterator[Row]:
    """Budgets, the most of the heap in them, and whether gradients are the same."""
    before = {name: each.clone() for name, each in model.state_dict().items()}
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    expected = outcome(model, lambda: train(model, loss))
    graph = 0 if ON_CUDA else own_graph(heap, loss)
    model.load_state_dict(before)
    for name, budget in [*budgets(model, loss)]:
        row, under = Row(name, budget), retape.torch.recompute(memory=budget)
        for number in range(RUNS):
            run_once(heap, model, before, under(loss), graph, expected, row, number)
        yield row
    yield verified(heap, model, before, loss, expected)


def verified(
    heap: Heap, model: nn.Module, before: dict[str, Tensor], loss: Loss,
    expected: list[Tensor],
) -> Row:  # fmt: skip
    """Two runs that compare what they compute again, stage by stage."""
    row = Row("verified", 0)
    for _ in range(2):
        under = retape.torch.recompute(snapshots=3, stage=16, verify=True)
        run_once(heap, model, before, under(loss), 0, expected, row, 0)
    return row


def run_once(
    heap: Heap, model: nn.Module, before: dict[str, Tensor], loss: Loss, graph: int,
    expected: list[Tensor], row: Row, number: int,
) -> None:  # fmt: skip
    """One run, into a row."""
    model.load_state_dict(before)
    values: list[Tensor] = []
    try:
        most = heap.peak(lambda: values.append(train(model, loss))) - graph
        row.most = max(row.most, most)
        found = outcome(model, values.pop)
        row.same = row.same and all(map(torch.equal, found, expected))
    except (BudgetError, MachineError) as error:
        least = getattr(error, "least", None)
        row.refused += f" REFUSED in run {number} ({type(error).__name__}, {least})"
        for each in model.parameters():
            if each.grad is not None:
                each.grad.zero_()


if __name__ == "__main__":
    if _MARK not in os.environ and not ON_CUDA:
        count_heap()
    main(sys.argv[1:])
