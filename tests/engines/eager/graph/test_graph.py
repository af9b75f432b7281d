"""The graph with marked checkpoints: every fault of the original, mended."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from retape import MachineError, PlanError, UnsupportedError
from retape.torch import Graph


def chain(length: int, op: Callable[[torch.Tensor], torch.Tensor] = torch.sin):
    graph = Graph()
    node = graph.leaf(torch.linspace(0.1, 1.0, 8))
    for _ in range(length):
        node = graph.apply(op, node)
    return graph, node


def test_a_gap_of_unmarked_nodes_is_recomputed_through() -> None:
    graph, root = chain(9)
    expected = root.value.clone()
    marked = graph.auto_checkpoint_every_n(root, 3, save_inputs=False)
    assert [node.index for node in marked] == [3, 6, 9]
    graph.release(*graph.nodes)
    assert torch.equal(graph.recompute(root), expected)
    assert [node.index for node in graph.nodes if node.value is not None] == [0, 9]


def test_without_saved_random_state_the_mask_differs() -> None:
    torch.manual_seed(3)
    graph, root = chain(1, lambda x: F.dropout(x.repeat(50), 0.5))
    expected = root.value.clone()
    graph.mark_checkpoint(root, save_rng=False)
    graph.release(root)
    assert not torch.equal(graph.recompute(root), expected)


def test_a_deep_chain_does_not_overflow_the_stack() -> None:
    graph, root = chain(5_000)
    expected = root.value.clone()
    graph.release(*graph.nodes)
    assert torch.equal(graph.recompute(root), expected)


def test_the_depth_limit_is_enforced() -> None:
    graph, root = chain(10)
    graph.mark_checkpoint(root, save_inputs=False, max_recompute_depth=9)
    graph.release(*graph.nodes)
    with pytest.raises(MachineError, match="`max_recompute_depth=9`"):
        graph.recompute(root)
    graph.mark_checkpoint(root, save_inputs=False, max_recompute_depth=10)
    assert graph.recompute(root) is root.value


def test_saved_inputs_have_no_history_and_leave_no_ghosts() -> None:
    graph = Graph()
    w = torch.ones(4, requires_grad=True)
    history = w * 2
    leaf = graph.leaf(history)
    node = graph.apply(torch.exp, leaf)
    graph.mark_checkpoint(node)
    assert node.saved_inputs is not None
    assert all(tensor.grad_fn is None for tensor in node.saved_inputs)
    graph.mark_checkpoint(node, detach_inputs=False)
    assert node.saved_inputs[0].grad_fn is not None


def live_bytes(graph: Graph) -> int:
    held: dict[int, int] = {}
    for node in graph.nodes:
        for tensor in (node.value, *(node.saved_inputs or ())):
            if tensor is not None:
                held[tensor.untyped_storage().data_ptr()] = tensor.nbytes
    return sum(held.values())


def test_memory_is_given_back() -> None:
    graph, root = chain(12)
    assert live_bytes(graph) == 13 * 32
    dead = weakref.ref(graph.nodes[5].value.untyped_storage())
    graph.auto_checkpoint_every_n(root, 4, save_inputs=False)
    graph.release_unmarked()
    assert dead() is None
    assert live_bytes(graph) == 4 * 32
    graph.backward(root)
    assert live_bytes(graph) == 4 * 32


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_gradients_are_those_of_autograd(n: int) -> None:
    x = torch.linspace(0.1, 1.0, 8, requires_grad=True)
    y = torch.ones(8, requires_grad=True)
    h = x
    for _ in range(11):
        h = torch.sin(h) * y + x
    h.backward(torch.arange(8.0))
    graph = Graph()
    a, b = graph.leaf(x.detach()), graph.leaf(y.detach())
    node = a
    for _ in range(11):
        node = graph.apply(
            torch.add, graph.apply(torch.mul, graph.apply(torch.sin, node), b), a
        )
    graph.auto_checkpoint_every_n(node, n)
    graph.release_unmarked()
    found = graph.backward(node, torch.arange(8.0))
    torch.testing.assert_close(found[a], x.grad, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[b], y.grad, rtol=1e-6, atol=1e-6)


def test_nodes_deeper_than_a_bound_are_marked() -> None:
    graph, root = chain(6)
    assert [node.index for node in graph.auto_checkpoint_by_depth(root, 4)] == [5, 6]


def test_leaves_are_marked_only_by_force() -> None:
    graph = Graph()
    leaf = graph.leaf(torch.ones(1))
    assert not graph.mark_checkpoint(leaf)
    assert graph.mark_checkpoint(leaf, force=True) and leaf.is_checkpoint


def test_a_verbose_graph_tells_what_it_marks_and_recomputes(caplog) -> None:
    caplog.set_level("DEBUG")
    graph, root = chain(4)
    graph.auto_checkpoint_every_n(root, 2)
    graph.release(*graph.nodes)
    graph.recompute(root)
    assert not caplog.records
    graph, root = chain(4)
    graph.auto_checkpoint_every_n(root, 2, verbose=True)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["checkpoint at node 2 (sin)", "checkpoint at node 4 (sin)"]
    graph.release(*graph.nodes)
    graph.recompute(root)
    assert caplog.records[-1].getMessage() == "recompute node 4 (sin)"


def test_threads_may_recompute_at_once() -> None:
    graph, root = chain(200)
    expected = root.value.clone()
    other = graph.apply(torch.cos, graph.nodes[100])
    graph.release(*graph.nodes)
    results: list[torch.Tensor] = []

    def work(node) -> None:
        results.append(graph.recompute(node).clone())

    threads = [threading.Thread(target=work, args=(n,)) for n in [root, other] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(torch.equal(result, expected) for result in results) == 4


def released(graph: Graph, root: Any) -> None:
    graph.release(root)


def marked(graph: Graph, root: Any) -> None:
    graph.mark_checkpoint(root)
    graph.release(root)


def backward(graph: Graph, root: Any) -> None:
    graph.backward(root)


def overwriting(graph: Graph, root: Any) -> None:
    graph.apply(lambda x, *_: x.mul_(2), graph.nodes[0], root)


WRITTEN = {
    "a parent": (released, 2, Graph.recompute),
    "a saved input": (marked, 2, Graph.recompute),
    "the node": (released, 3, Graph.recompute),
    "a leaf": (released, 0, backward),
    "on the way back": (released, 1, backward),
    "by an operation": (released, 0, overwriting),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_overwrite_is_noticed_and_accepted(name: str) -> None:
    """All that was computed from what was written is computed again."""
    prepare, at, read = WRITTEN[name]
    graph, root = chain(3)
    prepare(graph, root)
    written = graph.nodes[at]
    if read is not overwriting:
        if written.value is None:
            graph.recompute(root)
        written.value.mul_(2)
    with pytest.raises(MachineError, match=f"Node `{at}` .* overwritten in place"):
        read(graph, root)
    graph.accept(written)
    x = written.value.clone().requires_grad_()
    end = x
    for _ in range(at, 3):
        end = end.sin()
    end.sum().backward()
    assert torch.equal(graph.recompute(root), end)
    torch.testing.assert_close(graph.backward(root)[written], x.grad)


def test_what_was_let_go_is_not_accepted() -> None:
    graph, root = chain(2)
    graph.release(root)
    with pytest.raises(PlanError, match="was let go"):
        graph.accept(root)


def test_what_an_operation_reads_by_itself_gets_its_gradient() -> None:
    layer, x = torch.nn.Linear(8, 8), torch.ones(8)
    layer(layer(x)).sum().backward()
    want = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    graph = Graph()
    root = graph.apply(layer, graph.apply(layer, graph.leaf(x)))
    graph.backward(root)
    for parameter, each in zip(layer.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad, each)


def counted(buffer: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    def op(x: torch.Tensor) -> torch.Tensor:
        buffer[:2].add_(1)
        buffer[1:].mul_(2)
        scratch = x.clone()
        scratch.mul_(2)
        return scratch * buffer.sum()

    return op


def spectral() -> torch.nn.Module:
    return torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 3))


# A module, or a function, and the buffers that it overwrites.
OVERWRITES: dict[str, Callable[[], tuple[Any, list[torch.Tensor]]]] = {
    "BatchNorm1d": lambda: with_buffers(torch.nn.BatchNorm1d(3)),
    "in evaluation": lambda: with_buffers(torch.nn.BatchNorm1d(3).eval()),
    "without affine": lambda: with_buffers(torch.nn.BatchNorm1d(3, affine=False)),
    "InstanceNorm1d": lambda: with_buffers(
        torch.nn.InstanceNorm1d(4, track_running_stats=True)
    ),
    "spectral_norm": lambda: with_buffers(spectral()),
    "views": lambda: (counted(buffer := torch.ones(3)), [buffer]),
}


def with_buffers(module: torch.nn.Module) -> tuple[Any, list[torch.Tensor]]:
    return module, list(module.buffers())


@pytest.mark.parametrize("name", OVERWRITES)
def test_what_an_operation_overwrites_is_overwritten_once(name: str) -> None:
    x = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
    torch.manual_seed(0)
    module, buffers = OVERWRITES[name]()
    middle = module(x)
    module(middle).square().sum().backward()
    want = [each.clone() for each in buffers]
    torch.manual_seed(0)
    module, buffers = OVERWRITES[name]()
    graph = Graph()
    leaf = graph.leaf(x.detach())
    first = graph.apply(module, leaf)
    root = graph.apply(lambda y: y.square().sum(), graph.apply(module, first))
    graph.release(*graph.nodes)
    assert torch.equal(graph.recompute(first), middle)
    graph.release(*graph.nodes)
    torch.testing.assert_close(graph.backward(root)[leaf], x.grad)
    assert all(map(torch.equal, buffers, want))


def test_what_is_released_is_not_marked() -> None:
    graph, root = chain(2)
    graph.release(*graph.nodes)
    with pytest.raises(UnsupportedError, match="before `release`"):
        graph.mark_checkpoint(root)


def test_an_inference_tensor_is_a_leaf() -> None:
    """It has no counter of writes, and ended in an error of PyTorch's."""
    with torch.inference_mode():
        constant = torch.full((3,), 0.5)
    graph = Graph()
    x, c = graph.leaf(torch.ones(3)), graph.leaf(constant)
    root = graph.apply(lambda x, c: (x + c).square().sum(), x, c)
    graph.release(root)
    assert graph.recompute(root).item() == 6.75
    assert torch.equal(graph.backward(root)[x], torch.full((3,), 3.0))
