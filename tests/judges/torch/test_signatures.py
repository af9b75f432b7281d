"""What `torch.utils.checkpoint` takes, ours take: its options, and its defaults."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import checkpoint as pytorch  # noqa: E402

import retape  # noqa: E402
import retape.torch  # noqa: E402
from tests.judges.torch.faces import Called, Operators  # noqa: E402

mm = torch.ops.aten.mm
OURS: dict[str, Callable[..., Any]] = {
    "checkpoint": retape.torch.checkpoint,
    "checkpoint_sequential": retape.torch.checkpoint_sequential,
}


PLACES = {
    "checkpoint": ["function", "args", "use_reentrant"],
    "checkpoint_sequential": ["functions", "segments", "input", "use_reentrant"],
}


def options(name: str) -> dict[str, Any]:
    """The options of PyTorch's function, each with its default."""
    given = inspect.signature(getattr(pytorch, name)).parameters.values()
    return {each.name: each.default for each in given if each.kind not in (2, 4)}


@pytest.mark.parametrize("name", OURS)
def test_every_parameter_has_its_name_and_place(name: str) -> None:
    ours = inspect.signature(OURS[name]).parameters
    assert set(options(name)) <= set(ours)
    assert [n for n in ours if n in PLACES[name]] == PLACES[name]


DEFAULTS = {
    name: value
    for name, value in options("checkpoint").items()
    if value is not inspect.Parameter.empty and name != "function"
}
CASES: list[dict[str, Any]] = [
    {},
    {"preserve_rng_state": False},
    {"use_reentrant": True},
    {"early_stop": False},
    {"determinism_check": "none"},
    {"debug": True},
    *({name: DEFAULTS[name]} for name in DEFAULTS),
]


@pytest.mark.parametrize("given", CASES, ids=lambda given: "-".join(given) or "none")
def test_an_option_changes_no_gradient(given: dict[str, Any]) -> None:
    w = torch.linspace(0.1, 0.9, 9).view(3, 3).requires_grad_()
    loss = retape.torch.checkpoint(lambda a, s: (a @ a).tanh() * s, w, s=2, **given)
    loss.sum().backward()
    want = torch.autograd.grad(((w @ w).tanh() * 2).sum(), w)[0]
    assert torch.equal(w.grad, want)


@pytest.mark.parametrize("given", [{}, {"policy": mm}, {"debug": True}])
def test_without_a_function_it_is_a_decorator(given: dict[str, Any]) -> None:
    """As PyTorch's is, from 2.15 on."""

    @retape.torch.checkpoint(use_reentrant=False, **given)
    def layer(a: Any, s: float = 1.0) -> Any:
        return (a @ a).tanh() * s

    w = torch.linspace(0.1, 0.9, 9).view(3, 3).requires_grad_()
    with Operators() as ran:
        layer(w, s=2).sum().backward()
    want = torch.autograd.grad(((w @ w).tanh() * 2).sum(), w)[0]
    assert torch.equal(w.grad, want) and layer.__name__ == "layer"
    assert ran.calls.count(torch.ops.aten.tanh.default) == 2
    with pytest.raises(retape.PlanError, match="decorator above a function"):
        retape.torch.checkpoint()(3)  # pyright: ignore


def test_hooks_of_what_is_saved_are_not_said_to_be_respected() -> None:
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(retape.UnsupportedError, match="leave the option out"):
        retape.torch.checkpoint(torch.sin, w, respect_saved_tensors_hooks=True)


POLICIES: dict[str, Any] = {
    "an overload": mm.default,
    "a packet": mm,
    "a tuple": (mm.default,),
    "a list": [mm],
    "a set": {mm.default},
    "a function": lambda func: func is mm.default,
    "a function with PyTorch's answers": lambda func: (
        pytorch.CheckpointPolicy.MUST_SAVE
        if func is mm.default
        else pytorch.CheckpointPolicy.PREFER_RECOMPUTE
    ),
}
FACES: dict[str, Callable[[Any, Any], Any]] = {
    "recompute": lambda policy, f: retape.torch.recompute(memory="1MB", policy=policy)(
        f
    )(),
    "checkpoint": lambda policy, f: retape.torch.checkpoint(f, policy=policy),
    "Checkpointed": lambda policy, f: retape.torch.Checkpointed(Called(f), policy)(),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_in_any_form_is_one(policy: str, face: str) -> None:
    w = torch.linspace(0.1, 0.9, 9).view(3, 3).requires_grad_()
    ways = POLICIES[policy], POLICIES["a function"]
    grads, counted = [], []
    for way in ways:
        loss = FACES[face](way, lambda: (w @ w).tanh().sum())
        with Operators() as run:
            grads.append(torch.autograd.grad(loss, w)[0])
        counted.append(run.calls)
    grads.append(torch.autograd.grad((w @ w).tanh().sum(), w)[0])
    assert all(torch.equal(grad, grads[-1]) for grad in grads)
    assert counted[0] == counted[1]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("answer", [None, "no", 1, pytorch.CheckpointPolicy])
def test_what_is_no_answer_is_refused(answer: Any, face: str) -> None:
    with pytest.raises(retape.PlanError, match=r"Return `True` or `False`"):
        FACES[face](lambda func: answer, lambda: torch.ones(2) @ torch.ones(2))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("policy", ["mm", ["mm"], 3, [3]])
def test_what_is_no_policy_is_refused(policy: Any, face: str) -> None:
    with pytest.raises(retape.PlanError, match=r"Pass operators such as"):
        FACES[face](policy, lambda: torch.ones(2))
