"""A wrapped module is its module: what is done to the wrapper is done to that."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import retape  # noqa: E402
from retape.torch import Checkpointed  # noqa: E402


class Block(nn.Module):
    """With an attribute, a buffer, a mode that it keeps, and a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.tensor(0.5))
        self.scale, self.steps = 2.0, 0

    def train(self, mode: bool = True) -> "Block":
        super().train(mode)
        self.norm.eval()  # its statistics are frozen
        return self

    def get_extra_state(self) -> Any:
        return {"steps": self.steps, "scale": self.scale}

    def set_extra_state(self, state: Any) -> None:
        self.steps, self.scale = state["steps"], state["scale"]

    def forward(self, x: Any) -> Any:
        x = self.norm(self.linear(x)) * self.scale * self.gain + self.shift
        return x + 1 if self.training else x


class Recurrent(nn.LSTM):
    """Keeps a list of its weights beside the table of them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(3, 3)
        self.scale, self.gain = 2.0, nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        found = super().forward(x)[0] * self.scale * self.gain + self.shift
        return found + 1 if self.training else found


def doubled(module: nn.Module) -> None:
    for each in module.parameters(recurse=False):
        each.data.mul_(2)


def loaded(module: nn.Module, **options: Any) -> None:
    state = copy.deepcopy(module.state_dict())
    state["gain"] = torch.tensor(-1.0)
    if "_extra_state" in state:
        state["_extra_state"]["scale"] = 7.0
    module.load_state_dict(state, **options)


def hooked(module: nn.Module) -> None:
    def more(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        state[prefix + "gain"] = state[prefix + "gain"] + 1

    module.register_state_dict_post_hook(more)
    loaded(module)


def assigned(name: str, make: Callable[[], Any]) -> Callable[[Any], None]:
    return lambda module: setattr(module, name, make())


DEEDS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda module: None,
    "set an attribute": assigned("scale", lambda: 0.0),
    "set a parameter": assigned("gain", lambda: nn.Parameter(torch.tensor(3.0))),
    "set a buffer": assigned("shift", lambda: torch.tensor(9.0)),
    "delete and set": lambda module: (
        delattr(module, "scale"),
        setattr(module, "scale", 5.0),
    ),
    "delete a parameter": lambda module: (
        delattr(module, "gain"),
        setattr(module, "gain", 4.0),
    ),
    "set training": assigned("training", lambda: False),
    "train": lambda module: module.train(),
    "eval": lambda module: module.eval(),
    "to float64": lambda module: module.to(torch.float64),
    "double": lambda module: module.double(),
    "bfloat16 and back": lambda module: module.bfloat16().float(),
    "apply": lambda module: module.apply(doubled),
    "requires_grad_": lambda module: module.requires_grad_(False),
    "register_buffer": lambda module: module.register_buffer("shift", torch.ones(())),
    "register_parameter": lambda module: module.register_parameter(
        "gain", nn.Parameter(torch.zeros(()))
    ),
    "register_module": lambda module: module.register_module("more", nn.Linear(1, 1)),
    "load_state_dict": loaded,
    "load_state_dict, assign": lambda module: loaded(module, assign=True),
    "a hook of the state": hooked,
    "a hook after the forward": lambda module: module.register_forward_hook(
        lambda module, given, result: result * 3
    ),
}
PLACES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "alone": lambda module: module,
    "in a chain": lambda module: nn.Sequential(module),
}
# What a module around it passes on to its parts, by itself.
PASSED_ON = {
    "nothing", "train", "eval", "to float64", "double", "bfloat16 and back", "apply",
    "requires_grad_",
}  # fmt: skip


def seen(module: nn.Module) -> list[Any]:
    """All that can be seen of a module: values, gradients, state."""
    kind = next(module.parameters()).dtype
    x = torch.linspace(-1, 1, 6).view(2, 3).to(kind).requires_grad_()
    module.zero_grad()
    out = module(x)
    out.square().sum().backward()
    state = module.state_dict()
    grads = {name: each.grad for name, each in module.named_parameters()}
    state = {k: copy.deepcopy(each) for k, each in state.items()}
    return [out.detach(), x.grad, *state.keys(), *state.values(), *grads.values()]


def assert_same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


CELLS = [
    (deed, place)
    for deed in DEEDS
    for place in PLACES
    if place == "alone" or deed in PASSED_ON
]


@pytest.mark.parametrize(("deed", "place"), CELLS)
@pytest.mark.parametrize("kind", [Block, Recurrent])
def test_what_is_done_to_the_wrapper_is_done(kind: Any, deed: str, place: str) -> None:
    found = []
    for wrap in (Checkpointed, lambda module: module):
        module = PLACES[place](wrap(kind()))
        seen(module)
        DEEDS[deed](module)
        found.append(seen(module))
    assert_same(*found)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "replica": lambda module: module._replicate_for_data_parallel(),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", [Block, Recurrent])
def test_a_copy_is_one_of_its_own(kind: Any, way: str) -> None:
    module = Checkpointed(kind()).train()
    before = seen(module)
    made = COPIES[way](module)
    made.scale, made.training = 0.0, False
    assert (made.scale, made.module.scale) == (0.0, 0.0)
    assert (module.scale, module.training) == (2.0, True)
    assert_same(seen(module), before)
    if way == "replica":
        made.gain = torch.tensor(0.0)
        assert_same(seen(module), before)
    else:
        assert torch.equal(made(torch.ones(2, 3)), torch.ones(2, 3) * made.shift)


def test_another_module_is_refused() -> None:
    module = Checkpointed(nn.Linear(2, 2))
    with pytest.raises(retape.PlanError, match="Wrap it anew"):
        module.module = nn.Linear(2, 2)


WEIGHT_NORM = nn.utils.parametrizations.weight_norm


def test_a_module_is_parametrized_and_no_wrapper() -> None:
    plain, x = WEIGHT_NORM(nn.Linear(2, 2)), torch.ones(3, 2)
    state = plain.state_dict()
    inside = Checkpointed(nn.Linear(2, 2))
    WEIGHT_NORM(inside.module)
    for module in (Checkpointed(WEIGHT_NORM(nn.Linear(2, 2))), inside):
        module.load_state_dict(state)
        assert torch.equal(module(x), plain(x))
        with pytest.raises(retape.PlanError, match="before it is wrapped"):
            WEIGHT_NORM(module, "bias", dim=None)
    with pytest.raises(retape.PlanError, match="before it is wrapped"):
        WEIGHT_NORM(Checkpointed(nn.Linear(2, 2)))
    assert Checkpointed(nn.Linear(2, 2)).bias.shape == (2,)


def test_an_attribute_that_is_nowhere_is_an_error() -> None:
    module = Checkpointed(nn.Linear(2, 2))
    with pytest.raises(AttributeError, match="nowhere"):
        module.nowhere  # noqa: B018
    with pytest.raises(AttributeError, match="nowhere"):
        del module.nowhere


class Named(nn.Module):
    """Its arguments are called as those of a checkpoint are."""

    def forward(self, function: Any, policy: float, debug: bool) -> Any:
        return torch.sin(function) * policy if debug else function


@pytest.mark.parametrize("way", ["plain", "compiled"])
def test_arguments_of_any_name_are_the_module_s(way: str) -> None:
    module: Any = Checkpointed(Named())
    if way == "compiled":
        module = torch.compile(module, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    module(function=x, policy=2.0, debug=True).sum().backward()
    assert torch.equal(x.grad, 2.0 * torch.ones(3).cos())
