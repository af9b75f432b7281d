"""Costs by shape, against PyTorch's own counter of operations."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from retape.engines.eager.analysis import _operator_cost as _costs
from retape.torch import recompute

PRODUCTS: dict[str, Callable[[], Tensor]] = {
    "mm": lambda: torch.ones(3, 5) @ torch.ones(5, 7),
    "mv": lambda: torch.ones(3, 5) @ torch.ones(5),
    "addmm": lambda: F.linear(torch.ones(3, 5), torch.ones(7, 5), torch.ones(7)),
    "bmm": lambda: torch.ones(2, 3, 5) @ torch.ones(2, 5, 7),
    "baddbmm": lambda: torch.baddbmm(
        torch.ones(2, 3, 7), torch.ones(2, 3, 5), torch.ones(2, 5, 7)
    ),
    "convolution": lambda: F.conv2d(
        torch.ones(2, 4, 9, 9), torch.ones(6, 2, 3, 3), groups=2
    ),
    "strided": lambda: F.conv1d(torch.ones(2, 4, 9), torch.ones(6, 4, 3), stride=2),
    "transposed": lambda: F.conv_transpose2d(
        torch.ones(2, 4, 5, 5), torch.ones(4, 6, 3, 3)
    ),
    "attention": lambda: F.scaled_dot_product_attention(
        torch.ones(2, 3, 8, 4), torch.ones(2, 3, 16, 4), torch.ones(2, 3, 16, 4)
    ),
}  # fmt: skip


def operations(function: Callable[[], Tensor]) -> int:
    """Operations of the one product in a function, as its cost has them."""
    with recompute(memory="1GB") as run:
        function()
        trace = run._open[0][0].run.trace  # type: ignore[index, union-attr]
    steps = [
        step for step in trace.steps
        if step.signature.func._schema.name in _costs._FORMULAS
    ]  # fmt: skip
    (step,) = steps
    shapes = [each.size for each in step.signature.geometries]
    formula = _costs._FORMULAS[step.signature.func._schema.name]
    return formula(shapes, trace.roots[step.first].size)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_counted_by_their_operations(name: str) -> None:
    with FlopCounterMode(display=False) as counter:
        PRODUCTS[name]()
    unknown = {"mv": 2 * 3 * 5, "attention": 2 * 3 * 8 * 16 * (2 * 4 + 2 * 4)}
    expected = counter.get_total_flops() or unknown[name]
    assert operations(PRODUCTS[name]) == expected


def cell_operations() -> int:
    """Operations of a recurrent layer, cell by cell, as PyTorch counts them."""
    cell = torch.nn.LSTMCell(4, 6)
    with FlopCounterMode(display=False) as counter:
        state = None
        for x in torch.ones(7, 30, 4):
            state = cell(x, state)
    return counter.get_total_flops()


def test_a_recurrent_layer_is_counted_as_its_cells() -> None:
    # The states, 30 vectors of six numbers, are matrices, too, but no weights.
    layer = torch.nn.LSTM(4, 6)
    assert operations(lambda: layer(torch.ones(7, 30, 4))[0]) == cell_operations()


@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_of_a_graphics_processor_are_counted(packed: bool) -> None:
    given = [(7 * 30, 4)] if packed else [(7, 30, 4)]
    read = [*given, (24, 4), (24, 6), (24,), (24,), (288,), (1, 30, 6), (1, 30, 6)]
    for name in ("aten::_cudnn_rnn", "aten::miopen_rnn"):
        assert _costs._FORMULAS[name](read, (7, 30, 6)) == cell_operations()


def test_the_comparison_sees_a_wrong_count() -> None:
    with FlopCounterMode(display=False) as counter:
        torch.ones(3, 5) @ torch.ones(5, 8)
    assert operations(PRODUCTS["mm"]) != counter.get_total_flops()


def test_other_operators_are_counted_by_bytes() -> None:
    x = torch.ones(1000, 1000)
    with recompute(memory="1GB") as run:
        x.exp()
        (x + x).bernoulli_()
        F.gelu(x)
        torch.empty(1000, 1000)
        trace = run._open[0][0].run.trace  # type: ignore[index, union-attr]
    call = _costs._CALL
    assert _costs.step_costs(trace) == [
        call + 2 * x.nbytes, call + 3 * x.nbytes, call + 16 * 2 * x.nbytes,
        call + 2 * 2 * x.nbytes, call,
    ]  # fmt: skip
