"""A copy of a model computes with its own weights, whatever is done to the first one.

Trainers' callbacks have a model run in a budget, and others copy it meanwhile: for
averages of weights, frozen teachers, checkpoints on a disk.
"""

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402
from torch.optim.swa_utils import AveragedModel  # noqa: E402

import retape.torch  # noqa: E402
from retape.transformers import RetapeCallback  # noqa: E402


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.scale = nn.Linear(4, 4), 2.0

    def forward(self, x: Any) -> Any:
        x = self.linear(x) * self.scale
        return nn.functional.dropout(x, 0.5, self.training).tanh()


def halved(model: Any, x: Any) -> Any:
    return 0.5 * type(model).forward(model, x)


def with_its_own_forward() -> nn.Module:
    """Libraries put a forward on the instance, too."""
    model = Scaled()
    model.forward = MethodType(halved, model)
    return model


def chain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Scaled())


def saved(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def average(model: nn.Module) -> Any:
    return AveragedModel(model).module


MODELS: dict[str, Callable[[], nn.Module]] = {
    "class": Scaled,
    "forward on the instance": with_its_own_forward,
    "chain": chain,
    "Checkpointed": lambda: retape.torch.Checkpointed(Scaled()),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "AveragedModel": average,
    "torch.save": saved,
    **{
        f"pickle {n}": lambda model, n=n: pickle.loads(pickle.dumps(model, n))
        for n in (2, pickle.HIGHEST_PROTOCOL)
    },
}
X = torch.linspace(-1, 1, 8).view(2, 4)


OPTIONS = SimpleNamespace(gradient_checkpointing=False, torch_compile=False, n_gpu=1)


def budget(model: nn.Module) -> RetapeCallback:
    callback = RetapeCallback(memory="1GB")
    callback.on_train_begin(OPTIONS, None, None, model=model)
    return callback


def changed(model: Any) -> Any:
    """What it computes with weights, a mode and an attribute of its own."""
    weights = {k: v.clone().fill_(0.3) for k, v in model.state_dict().items()}
    model.load_state_dict(weights)
    model.eval()
    model.scale = -1.0
    return model(X)


# Its bound method cannot be pickled, and goes with a shallow copy, without us, too.
CELLS = [
    (name, way)
    for name in MODELS
    for way in COPIES
    if name != "forward on the instance" or way in ("deepcopy", "AveragedModel")
]


@pytest.mark.parametrize("while_it_trains", [True, False])
@pytest.mark.parametrize(("name", "way"), CELLS)
def test_a_copy_is_a_model_of_its_own(
    name: str, way: str, while_it_trains: bool
) -> None:
    want = changed(COPIES[way](MODELS[name]()))
    model = MODELS[name]()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    callback = budget(model)
    if not while_it_trains:
        model(X).sum().backward()
        callback.on_train_end(None, None, None)
    found = COPIES[way](model)
    assert type(found) is type(MODELS[name]())
    assert torch.equal(changed(found), want)
    if way != "copy":  # which shares the tables of parameters
        assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
        assert model.training


@pytest.mark.parametrize("name", MODELS)
def test_the_model_itself_is_in_the_budget_and_then_as_it_was(name: str) -> None:
    plain, model = MODELS[name](), MODELS[name]()
    callback = budget(model)
    assert inspect.signature(model.forward) == inspect.signature(plain.forward)
    for each in (plain, model):
        torch.manual_seed(1)
        each(X).square().sum().backward()
    assert callback.report is not None
    assert callback.report.steps > 0
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    callback.on_train_end(None, None, None)
    assert type(model) is type(plain)
    assert set(vars(model)) == set(vars(plain))
    assert model.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_state_dict_goes_in_and_out_while_it_trains(name: str) -> None:
    model, other = MODELS[name](), MODELS[name]()
    budget(model)
    other.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
    model.load_state_dict(other.state_dict())
    torch.manual_seed(2)
    got = model(X)
    torch.manual_seed(2)
    assert torch.equal(got, other(X))


def test_a_forward_that_is_replaced_while_it_trains_is_budgeted_too() -> None:
    model: Any = Scaled()
    callback = budget(model)
    model.forward = MethodType(halved, model)
    model(X).sum().backward()
    assert callback.report is not None
    assert callback.report.steps > 0
    callback.on_train_end(None, None, None)
    assert type(model) is Scaled
    assert model.forward.__func__ is halved


def test_a_callback_that_begins_with_another_model_leaves_the_first() -> None:
    first, second = Scaled(), Scaled()
    callback = budget(first)
    callback.on_train_begin(OPTIONS, None, None, model=second)
    assert type(first) is Scaled
    first(X).sum().backward()
    assert callback.report is None
    second(X).sum().backward()
    assert callback.report is not None
