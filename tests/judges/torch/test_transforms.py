"""Transforms of `torch.func` over programs that recompute: plain, to the bit."""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.func import (  # noqa: E402
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import retape.torch  # noqa: E402
from retape.torch import recompute  # noqa: E402
from tests.judges.pairwise import pairwise  # noqa: E402
from tests.judges.torch.faces import Called  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script")
Function = Callable[..., Any]
F64 = {"dtype": torch.float64}
X = torch.linspace(-1, 1, 24, **F64).view(4, 6)
XS = torch.linspace(-1, 2, 72, **F64).view(3, 4, 6)
W = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), **F64)


def dense(x: Any, w: Any) -> Any:
    return torch.tanh(x @ w)


def in_place(x: Any, w: Any) -> Any:
    y = x @ w
    return y.mul(y).add_(1).sqrt().mul(2).sub_(y)


def normed(x: Any, w: Any) -> Any:
    y = nn.functional.layer_norm(x @ w, (6,))
    return torch.softmax(y * x, -1).exp() + y.view(-1).view_as(x)


def reads_a_closure(x: Any, w: Any) -> Any:
    return torch.sin(x @ w) * W + x if x.shape[-2] == 6 else torch.sin(x @ w) @ W


def dropped(x: Any, w: Any) -> Any:
    return nn.functional.dropout(torch.tanh(x @ w), 0.3)


BODIES: dict[str, Function] = {
    each.__name__: each for each in (dense, in_place, normed, reads_a_closure, dropped)
}


FACES: dict[str, Callable[[Function], Function]] = {
    "checkpoint": lambda f: lambda *a: retape.torch.checkpoint(f, *a),
    "Checkpointed": lambda f: retape.torch.Checkpointed(Called(f)),
    "snapshots": lambda f: recompute(snapshots=2, stage=1)(f),
    "memory": lambda f: recompute(memory="1MB")(f),
    "verify": lambda f: recompute(snapshots=1, stage=1, verify=True)(f),
}


def loss_of(block: Function) -> Function:
    def loss(w: Any, x: Any) -> Any:
        for _ in range(3):
            x = block(x, w)
        return (x**2).sum()

    return loss


def rows_of(block: Function) -> Function:
    def rows(w: Any, x: Any) -> Any:
        return block(block(x, w), w).sum(0)

    return rows


def pulled(block: Function) -> Any:
    value, pull = vjp(lambda w: rows_of(block)(w, X), W)
    return value, pull(torch.ones_like(value)), pull(value.detach())


def with_a_graph(block: Function) -> Any:
    """Plain autograd around a transform: parameters have a graph of their own."""
    w = W.clone().requires_grad_()
    found = grad(lambda x: loss_of(block)(w, x))(X)
    return found.detach(), *torch.autograd.grad(found.sum(), w)


def of_modules(block: Function) -> Any:
    model = Called(lambda x: loss_of(block)(model.w, x))
    model.w = nn.Parameter(W)
    given = {name: each.detach() for name, each in model.named_parameters()}
    return grad(lambda p, x: functional_call(model, p, (x,)))(given, X)["w"]


TRANSFORMS: dict[str, Function] = {
    "grad": lambda b: grad(loss_of(b))(W, X),
    "of both": lambda b: grad(loss_of(b), (0, 1))(W, X),
    "grad_and_value": lambda b: grad_and_value(loss_of(b))(W, X),
    "vjp": pulled,
    "jacrev": lambda b: jacrev(rows_of(b))(W, X),
    "vmap(grad)": lambda b: vmap(grad(loss_of(b)), (None, 0), randomness="same")(W, XS),
    "vmap(grad) in parts": lambda b: vmap(
        grad(loss_of(b)), (None, 0), chunk_size=2, randomness="same"
    )(W, XS),
    "vmap of both": lambda b: vmap(grad(loss_of(b)), randomness="same")(
        torch.stack([W, W * 2, W * 3]), XS
    ),
    "vmap(jacrev)": lambda b: vmap(jacrev(rows_of(b)), (None, 0), randomness="same")(
        W, XS
    ),
    "vmap(vmap(grad))": lambda b: vmap(
        vmap(grad(loss_of(b)), (None, 0), randomness="same"), (0, None),
        randomness="same",
    )(torch.stack([W, W * 2]), XS),
    "grad of vmap": lambda b: grad(
        lambda w: vmap(loss_of(b), (None, 0), randomness="same")(w, XS).sum()
    )(W),
    "grad of grad": lambda b: grad(
        lambda w: grad(loss_of(b), 1)(w, X).square().sum()
    )(W),
    "hessian": lambda b: hessian(loss_of(b), 1)(W, X[:2]),
    "jacfwd": lambda b: jacfwd(rows_of(b))(W, X),
    "jvp of grad": lambda b: jvp(lambda w: grad(loss_of(b))(w, X), (W,), (W.cos(),)),
    "a graph around": with_a_graph,
    "of modules": of_modules,
}  # fmt: skip
COLUMNS = {
    "name": list(TRANSFORMS), "body": list(BODIES), "face": list(FACES),
    "accelerated": [False, True],
}  # fmt: skip


def can_be(name: str, body: str, **_: Any) -> bool:
    """But for the slower ones, which draw or have thousands of operators."""
    return body != "dropped" or name not in ("hessian", "jacfwd", "jvp of grad")


def flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for part in value for each in flat(part)]


def found_by(name: str, block: Function) -> list[Any]:
    torch.manual_seed(0)
    return [*flat(TRANSFORMS[name](block)), torch.rand(2)]


@pytest.mark.parametrize(
    ("name", "body", "face", "accelerated"),
    pairwise(COLUMNS, can_be, seed=0),
    indirect=["accelerated"],
)
def test_transforms_are_exact_or_refused_by_name(
    name: str, body: str, face: str, accelerated: bool
) -> None:
    plain = found_by(name, BODIES[body])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A recomputation inside of transforms")
        try:
            found = found_by(name, FACES[face](BODIES[body]))
        except retape.UnsupportedError as error:
            assert "inside of `vmap`" in str(error)
            assert name == "vmap(jacrev)"
            return
    assert len(found) == len(plain)
    assert all(map(torch.equal, found, plain))


@pytest.mark.parametrize("name", ["grad", "vjp", "jacrev", "vmap(grad)", "of modules"])
def test_something_is_run_again(name: str) -> None:
    """And nothing is said: what is saved is let go, as it is without a transform."""
    runs = []

    def block(x: Any, w: Any) -> Any:
        runs.append(recompute(snapshots=1, stage=1))
        with runs[-1]:
            return torch.tanh(torch.sin(torch.tanh(x @ w)).exp())

    found_by(name, block)
    assert all(run.report.recomputed > 0 for run in runs)


def test_nested_transforms_keep_and_say_so() -> None:
    with pytest.warns(retape.RetapeWarning, match="kept and not recomputed"):
        found_by("grad of grad", FACES["checkpoint"](dense))


def test_a_loop_inside_is_refused() -> None:
    block = recompute(snapshots=2, stage=2, mode="loop")(dense)
    with pytest.raises(retape.UnsupportedError, match="Leave `mode` out"):
        grad(loss_of(block))(W, X)


def test_hooks_are_refused_again_afterwards() -> None:
    def loss(w: Any) -> Any:
        y = retape.torch.checkpoint(torch.tanh, w)
        with torch.autograd.graph.save_on_cpu():
            return y.sum()

    with pytest.raises(RuntimeError, match="saved tensor hooks"):
        grad(loss)(W)
    with contextlib.nullcontext(), torch.autograd.graph.save_on_cpu():
        W.clone().requires_grad_().sin()
