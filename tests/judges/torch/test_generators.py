"""What is run again draws what it drew, from whichever generator it was.

A GPU's generator is not the CPU's default one; another generator stands for it here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import retape.torch

MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "operators": lambda: retape.torch.recompute(snapshots=2, stage=4),
    "loop": lambda: retape.torch.recompute(snapshots=2, stage=4, mode="loop"),
}
GENERATORS = {"default": torch.default_generator, "other": torch.Generator()}


@pytest.fixture(params=GENERATORS)
def generator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> torch.Generator:
    """A generator that `dropout` draws from in this test."""
    drawn = GENERATORS[request.param]

    def dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        mask = torch.empty_like(x).bernoulli_(1 - p, generator=drawn)
        return x * (mask / (1 - p)) if train else x

    monkeypatch.setattr(torch._VF, "dropout", dropout)
    return drawn


def gradient(
    generator: torch.Generator, under: contextlib.AbstractContextManager[Any]
) -> torch.Tensor:
    generator.manual_seed(3)
    w = torch.ones(64, requires_grad=True)
    with under:
        h = w
        for _ in range(40):
            h = torch.nn.functional.dropout(h * 1.01, 0.1)
        loss = h.sum()
    loss.backward()
    assert w.grad is not None
    return w.grad


@pytest.mark.parametrize("mode", MODES)
def test_a_dropout_that_runs_again_drops_the_same(
    mode: str, generator: torch.Generator
) -> None:
    plain = gradient(generator, contextlib.nullcontext())
    after = generator.get_state()
    assert torch.equal(gradient(generator, MODES[mode]()), plain)
    assert torch.equal(generator.get_state(), after), "the program's draws go on"


def test_a_node_of_a_graph_that_runs_again_drops_the_same(
    generator: torch.Generator,
) -> None:
    generator.manual_seed(3)
    graph = retape.torch.Graph()
    x = graph.leaf(torch.ones(64))
    y = graph.apply(lambda t: torch.nn.functional.dropout(t, 0.5), x)
    assert y.value is not None
    first = y.value.clone()
    after = generator.get_state()
    graph.release(y)
    assert torch.equal(graph.recompute(y), first)
    assert torch.equal(generator.get_state(), after)
    assert 0 < int((first == 0).sum()) < 64


def test_another_state_is_seen(generator: torch.Generator) -> None:
    first = gradient(generator, contextlib.nullcontext())
    generator.manual_seed(4)
    w = torch.ones(64)
    assert not torch.equal(torch.nn.functional.dropout(w, 0.9), first)


def test_the_text_of_a_node_is_short_however_long_its_history_is() -> None:
    graph = retape.torch.Graph()
    node = graph.leaf(torch.ones(2))
    for _ in range(2000):
        node = graph.apply(torch.add, node, node)
        graph.release(node) if node.index % 2 else None
    assert len(repr(node)) < 400
