"""The user's hooks on saved tensors are called, or it is said that they are not."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks  # noqa: E402

import retape  # noqa: E402
import retape.torch  # noqa: E402
from retape.torch import recompute  # noqa: E402
from tests.judges.torch.faces import Called  # noqa: E402

torch.manual_seed(0)
NET = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(8, 8), nn.Tanh())])
X = torch.linspace(-1, 1, 32).view(4, 8)
FACES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "snapshots": lambda f: recompute(snapshots=2, stage=4)(f)(X),
    "memory": lambda f: recompute(memory="1MB")(f)(X),
    "loop": lambda f: recompute(snapshots=2, stage=4, mode="loop")(f)(X),
    "checkpoint": lambda f: retape.torch.checkpoint(f, X),
    "Checkpointed": lambda f: retape.torch.Checkpointed(Called(f))(X),
    "chain, segments": lambda f: retape.torch.checkpoint_sequential([f, f], 2, X),
    "chain, memory": lambda f: retape.torch.checkpoint_sequential(
        [f, f], input=X, memory="1MB"
    ),
}


def gradient(face: str, make: Callable[[], Any], inside: bool) -> list[Any]:
    def hooked(x: Any) -> Any:
        with make():
            return NET(x)

    if inside:
        loss = FACES[face](hooked)
    else:
        with make():
            loss = FACES[face](NET)
    loss = loss.square().mean()
    return list(torch.autograd.grad(loss, list(NET.parameters())))


def plain(face: str) -> list[Any]:
    y = NET(NET(X)) if face.startswith("chain") else NET(X)
    return list(torch.autograd.grad(y.square().mean(), list(NET.parameters())))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("face", FACES)
def test_hooks_are_called_or_it_is_said(face: str, inside: bool) -> None:
    calls = [0]

    def pack(tensor: Any) -> Any:
        calls[0] += 1
        return tensor

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = gradient(
                face, lambda: saved_tensors_hooks(pack, lambda each: each), inside
            )
        except retape.RetapeError:
            return
    told = [str(each.message) for each in said if each.category is retape.RetapeWarning]
    assert calls[0] or any("saved_tensors_hooks" in text for text in told)
    assert all(torch.equal(a, b) for a, b in zip(found, plain(face), strict=True))


@pytest.mark.parametrize("face", FACES)
def test_nothing_is_said_without_hooks(face: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FACES[face](NET)
        with save_on_cpu():
            pass
        with recompute(memory="1MB"):
            FACES[face](NET) if face != "loop" else None
