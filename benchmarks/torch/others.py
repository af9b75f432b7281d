"""Small models of others: `transformers` and `torchdiffeq`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from benchmarks.torch.programs import Program
from torch import Tensor, nn

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
    Llama Mistral Qwen2 Qwen3 Phi Phi3 Gemma Gemma2 OPT Bloom GPTNeoX GPTJ Falcon
    Mamba Mixtral Qwen2Moe DeepseekV3 Olmo Starcoder2 Granite StableLm Cohere
""".split()
MASKED = "Bert Roberta DistilBert Electra Albert DebertaV2 MPNet RoFormer".split()
PAIRED = "T5 Bart Pegasus".split()
IMAGES = "ViT DeiT Swin ConvNext ResNet Beit".split()


def trained(model: nn.Module, loss: Callable[[], Tensor]) -> Program:
    """A program of a module."""
    return Program(loss, list(model.parameters()), model)


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


def _text(name: str, suffix: str, decoder: bool = False) -> Program:
    import transformers

    model = getattr(transformers, name + suffix)(_config(transformers, name)).train()
    text = torch.randint(3, 128, (4, 48))
    more = {"decoder_input_ids": text} if decoder else {}
    if hasattr(model, "set_experts_implementation"):  # the quick one takes half numbers
        model.set_experts_implementation("eager")
    return trained(model, lambda: model(input_ids=text, labels=text, **more).loss)


def _image(name: str) -> Program:
    import transformers

    config = _config(transformers, name)
    if name == "Swin":  # four halvings, and windows of seven
        config.image_size, config.patch_size = 224, 4
    model = getattr(transformers, name + "Model")(config).train()
    size = getattr(config, "image_size", 64)
    images = torch.randn(4, 3, size, size)
    return trained(model, lambda: model(images).last_hidden_state.square().mean())


class Field(nn.Module):
    """The right-hand side of a differential equation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y) * torch.cos(t)


def _ode(method: str) -> Program:
    from torchdiffeq import odeint

    field, y, times = Field(), torch.randn(256, 32), torch.linspace(0, 2, 6)
    options: dict[str, Any] = {}
    if method in ("euler", "rk4"):
        options["options"] = {"step_size": 0.1}
    if method == "adaptive_heun":  # at the 1e-7 of the others its graph takes gigabytes
        options |= {"rtol": 1e-4, "atol": 1e-4}
    solve = lambda: odeint(field, y, times, method=method, **options)  # noqa: E731
    return trained(field, lambda: solve().square().mean())


def models() -> dict[str, Callable[[], Program]]:
    """All of them by name."""
    found: dict[str, Callable[[], Program]] = {}

    def add(make: Callable[..., Program], names: Iterable[str], *more: Any) -> None:
        found.update({n.lower(): partial(make, n, *more) for n in names})

    add(_text, ["GPT2"], "LMHeadModel")
    add(_text, LANGUAGE, "ForCausalLM")
    add(_text, MASKED, "ForMaskedLM")
    add(_text, PAIRED, "ForConditionalGeneration", True)
    add(_text, ["Marian"], "MTModel", True)
    add(_image, IMAGES)
    add(_ode, ["euler", "rk4", "dopri5", "adaptive_heun"])
    return found
