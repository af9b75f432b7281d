"""What an operator is refused for is said, wherever it is called; the rest is right."""

import contextlib
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


def plainly(value: Any) -> Any:
    return value.inner if isinstance(value, Wrapped) else value


@pytest.mark.parametrize("sizes", [None, "sizes", "strides"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_right_or_refused_by_name(call: str, sizes: str | None) -> None:
    """A class may overwrite where no operator shows it; else it is asked."""
    want, w = CALLS[call](torch.ones(3)), Wrapped(torch.ones(3), sizes)
    with contextlib.ExitStack() as scope:
        if call.startswith("i") and call not in ("in", "item"):
            found = None
            refused = pytest.raises(retape.UnsupportedError, match="into a copy")
            scope.enter_context(refused)
        with recompute(snapshots=2, stage=2):
            found = CALLS[call](w)
        assert torch.equal(torch.as_tensor(plainly(found)), torch.as_tensor(want))


# Of a wrapper that nobody can take apart, what is saved is kept.
OPAQUE: dict[str, Callable[[Any], Any]] = {
    "sizes": lambda w: (w * w.sum()).view(-1).view(4, 3).exp(),
    "chain": lambda w: (w * w).sin().exp() * w,
    "product": lambda w: (w @ w.t()).tanh() @ w,
    "with others": lambda w: (w * torch.linspace(0, 1, 12).view(4, 3).exp()).sin(),
}


LIMITS = [{"snapshots": 2, "stage": 1}, {"memory": "1MB"}]


def assert_exact(make: Callable[[], Any], f: Callable[[Any], Any], limits: Any) -> Any:
    """The gradient of the values is the plain one; what is made, without a budget."""
    found = []
    for under in (contextlib.nullcontext(), recompute(**limits)):
        torch.manual_seed(0)
        given = make()
        with under:
            made = f(given)
            loss = (made.values() if made.is_nested else made).square().sum()
        loss.backward()
        grad = plainly(given.grad)
        found.append(grad.values() if grad.is_nested else grad)
    assert torch.equal(*found)


@pytest.mark.usefixtures("accelerated")
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("sizes", [None, "sizes", "strides"])
@pytest.mark.parametrize("name", OPAQUE)
def test_opaque_wrappers_are_exact(name: str, sizes: Any, limits: Any) -> None:
    def made() -> Any:
        return Wrapped(torch.linspace(-1, 1, 12).view(4, 3).requires_grad_(), sizes)

    with pytest.warns(retape.RetapeWarning, match="take it apart"):
        assert_exact(made, OPAQUE[name], limits)


class Carrier(torch.Tensor):
    """A subclass that keeps its data beside, and is made anew of each result."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data_beside = data

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args = tuple(a.data_beside if isinstance(a, cls) else a for a in args)
        made = func(*args, **(kwargs or {}))
        return cls(made) if isinstance(made, torch.Tensor) else made


class Named(torch.Tensor):
    """A subclass that adds nothing."""


MADE: dict[str, Callable[[], Any]] = {
    "carrier": lambda: Carrier(torch.ones(2, 3)).exp().data_beside,
    "called": lambda: Named(torch.ones(2, 3)).exp(),
    "of numbers": lambda: Named([1.0, 2.0]).exp(),
    "as a subclass": lambda: torch.ones(2, 3).as_subclass(Named).exp(),
    "made by the class": lambda: torch.Tensor._make_subclass(Named, torch.ones(2)),
}


@pytest.mark.usefixtures("accelerated")
@pytest.mark.parametrize("name", MADE)
def test_a_subclass_is_made_or_refused_by_name(name: str) -> None:
    want = MADE[name]()
    try:
        with recompute(snapshots=2, stage=2):
            found = MADE[name]()
    except retape.UnsupportedError as error:
        assert "as_subclass" in str(error)
        return
    assert torch.equal(found, want)


@pytest.mark.parametrize("sizes", [None, "sizes", "strides"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_metadata_is_answered(question: str, sizes: Any) -> None:
    ask, plain = QUESTIONS[question], torch.ones(3)
    with recompute(snapshots=2, stage=2):
        assert ask(Wrapped(plain, sizes)) == ask(plain)


def jagged() -> Any:
    rows = [torch.linspace(0, 1, 3 * n).view(n, 3) for n in (2, 4, 1)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


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
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", JAGGED)
def test_jagged_tensors_are_exact(name: str, limits: Any) -> None:
    assert_exact(jagged, JAGGED[name], limits)


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
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", STORAGELESS)
def test_tensors_without_a_storage_are_right(name: str, limits: Any) -> None:
    three = lambda: torch.linspace(0.1, 0.9, 3).requires_grad_()  # noqa: E731
    assert_exact(three, STORAGELESS[name], limits)
