"""A real architecture, as others wrote it, from its configuration."""

import os

import pytest
import torch

import retape.torch
from tests.engines.eager.api.test_program_forms import assert_same

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")


def llama() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        num_hidden_layers=4, hidden_size=32, intermediate_size=64, vocab_size=64,
        num_attention_heads=4, num_key_value_heads=2, attention_dropout=0.1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def test_gradients_are_the_plain_ones() -> None:
    outcomes = []
    for memory in (None, "700kB"):
        torch.manual_seed(0)
        model = llama().train()
        text = torch.randint(0, 64, (4, 24))
        run = retape.torch.recompute(memory=memory) if memory else torch.enable_grad()
        with run:
            loss = model(input_ids=text, labels=text, use_cache=False).loss
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        outcomes.append([*grads, loss.detach(), torch.get_rng_state()])
    assert_same(*outcomes)
    assert run.report.recomputed > 50
