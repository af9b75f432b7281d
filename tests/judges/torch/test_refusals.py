"""What an operator is refused for is said, wherever it is called; the rest is right."""

import operator
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_map_only  # noqa: E402

import retape  # noqa: E402
from retape.torch import recompute  # noqa: E402


class Wrapped(torch.Tensor):
    """A wrapper that nobody can take apart."""

    @staticmethod
    def __new__(cls, inner: Any, sizes: str | None = None) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            inner.stride(),
            dtype=inner.dtype,
            requires_grad=inner.requires_grad,
            dispatch_sizes_strides_policy=sizes,
        )

    def __init__(self, inner: Any, sizes: str | None = None) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args = tree_map_only(cls, lambda each: each.inner, args)
        return tree_map_only(torch.Tensor, cls, func(*args, **(kwargs or {})))


TWO = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le",
    "gt", "ge", "iadd", "isub", "imul", "itruediv", "ipow",
]  # fmt: skip
FROM_THE_RIGHT = ["add", "sub", "mul", "truediv", "pow"]
CALLS: dict[str, Callable[[Any], Any]] = {
    **{name: lambda w, name=name: getattr(operator, name)(w, 2) for name in TWO},
    **{
        f"r{name}": lambda w, name=name: getattr(operator, name)(2, w)
        for name in FROM_THE_RIGHT
    },
    "matmul": lambda w: w @ w,
    "neg": lambda w: -w,
    "abs": abs,
    "exp": torch.exp,
    "in": lambda w: 2 in w,
    "item": lambda w: w.sum().item(),
}
# Only metadata is read: nothing to refuse.
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "size": lambda w: w.size(),
    "stride": lambda w: w.stride(),
    "numel": lambda w: w.numel(),
    "dim": lambda w: w.dim(),
    "offset": lambda w: w.storage_offset(),
    "contiguous": lambda w: w.is_contiguous(),
    "device": lambda w: w.device,
    "len": len,
}


@pytest.mark.parametrize("sizes", [None, "sizes", "strides"])
@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_has_its_name(call: str, sizes: str | None) -> None:
    w = Wrapped(torch.ones(3), sizes)
    with pytest.raises(retape.UnsupportedError, match="unwrap the tensors"):
        with recompute(snapshots=2, stage=2):
            CALLS[call](w)


@pytest.mark.parametrize("sizes", [None, "sizes", "strides"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_metadata_is_answered(question: str, sizes: Any) -> None:
    ask, plain = QUESTIONS[question], torch.ones(3)
    with recompute(snapshots=2, stage=2):
        assert ask(Wrapped(plain, sizes)) == ask(plain)


def jagged(*, grad: bool = True) -> Any:
    rows = [torch.linspace(0, 1, 3 * n).view(n, 3) for n in (2, 4, 1)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)


M = torch.linspace(-1, 1, 9).view(3, 3)
JAGGED: dict[str, Callable[[Any], Any]] = {
    "mul": lambda t: t * 2,
    "add": lambda t: t + t,
    "exp": lambda t: t.exp(),
    "chain": lambda t: (t * t).sin().exp() * t,
    "linear": lambda t: torch.nn.functional.linear(t, M).tanh(),
    "matmul": lambda t: (t @ M).relu() * t,
    "layer_norm": lambda t: torch.nn.functional.layer_norm(t, (3,)).exp(),
    "softmax": lambda t: t.exp().softmax(-1).sin(),
    "made inside": lambda t: torch.nested.nested_tensor_from_jagged(
        t.values() * 2, t.offsets()
    ).exp(),
    "offsets made inside": lambda t: torch.nested.nested_tensor_from_jagged(
        t.values() * 2, t.offsets() + 0
    ).exp(),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("limits", [{"snapshots": 2, "stage": 1}, {"memory": "1MB"}])
@pytest.mark.parametrize("name", JAGGED)
def test_jagged_tensors_are_exact(name: str, limits: Any) -> None:
    plain, ours = jagged(), jagged()
    JAGGED[name](plain).values().square().sum().backward()
    with recompute(**limits):
        loss = JAGGED[name](ours).values().square().sum()
    loss.backward()
    assert torch.equal(ours.grad.values(), plain.grad.values())


def sparse(x: Any) -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2, 2]]), x * 2, (4,))


def nested(x: Any) -> Any:
    return torch.nested.as_nested_tensor([x, (x * 3)[:2]])


def accumulated(x: Any) -> Any:
    table = torch.nn.Embedding(10, 3, sparse=True)
    for index in (torch.tensor([1, 2, 2]), torch.tensor([3, 1])):
        table(index).exp().sum().backward()
    return (x * table.weight.grad.to_dense()[1]).sin()


STORAGELESS: dict[str, Callable[[Any], Any]] = {
    "sum of sparse": lambda x: (sparse(x) + sparse(x.sin())).coalesce().values().exp(),
    "stacked": lambda x: torch.stack([sparse(x), sparse(x)]).to_dense().sin(),
    "padded": lambda x: torch.nested.to_padded_tensor(nested(x), 0.0).sin(),
    "a function of nested": lambda x: torch.nested.to_padded_tensor(
        nested(x) * 2, 0.0
    ).exp(),
    "a part of nested": lambda x: nested(x.sin()).unbind()[1].exp(),
    "accumulated": accumulated,
    "mkldnn": lambda x: x.sin().to_mkldnn().relu().to_dense().exp(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STORAGELESS)
def test_tensors_without_a_storage_are_right(name: str) -> None:
    found = []
    for under in (None, recompute(snapshots=2, stage=1), recompute(memory="1MB")):
        torch.manual_seed(0)
        x = torch.linspace(0.1, 0.9, 3).requires_grad_()
        f = STORAGELESS[name]
        loss = (f if under is None else under(f))(x).square().sum()
        loss.backward()
        found.append(x.grad)
    assert all(torch.equal(each, found[0]) for each in found)
