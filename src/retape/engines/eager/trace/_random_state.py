"""State of the generator that an operator draws from: saved and restored."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch

from retape._errors import UnsupportedError
from retape.engines.eager._torch_compile import OperatorWatch

Drawn: TypeAlias = tuple[tuple[torch.Generator, torch.Tensor], ...]


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that operators on `device` draw from unless given one."""
    if device.type == "cpu":
        return torch.default_generator
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    raise UnsupportedError(
        f"A random operator ran on device `{device}`, whose generator Retape does not "
        "know how to restore. Draw on the CPU or on CUDA, or outside `recompute`."
    )


def generator_for(args: Iterable[Any], kwargs: Mapping[str, Any]) -> torch.Generator:
    """The generator of a call: the one passed, else the default one of its device."""
    values = [*args, *kwargs.values()]
    for value in values:
        if isinstance(value, torch.Generator):
            return value
    for value in values:
        if isinstance(value, torch.Tensor):
            return default_generator(value.device)
    return default_generator(torch.device(kwargs.get("device") or "cpu"))


def present_generators() -> list[torch.Generator]:
    """Generators that operators draw from unless given one, of devices in use."""
    cuda = torch.cuda.is_initialized()
    others = torch.cuda.default_generators if cuda else ()
    return [torch.default_generator, *others]


class Draws(OperatorWatch):
    """Sees which generators are drawn from inside, by operators or behind them.

    Attributes:
        before: By generator, its state before the first draw.
    """

    def __init__(self) -> None:
        super().__init__()
        own = torch.default_generator
        self.before = {own: own.get_state()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and note the state that it may be about to change."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            generator = generator_for(args, kwargs)
            if generator not in self.before and not _is_default(generator):
                self.before[generator] = generator.get_state()
        return func(*args, **kwargs)

    def drawn(self) -> Drawn:
        """The states before, of the generators that have been drawn from."""
        return tuple(
            (generator, state)
            for generator, state in self.before.items()
            if not torch.equal(state, generator.get_state())
        )


def _is_default(generator: torch.Generator) -> bool:
    """Tell whether a generator is the CPU's default one, as another Python object.

    PyTorch wraps the default generator anew where an operator is given it.
    """
    own = torch.default_generator
    before = own.get_state()
    if generator.device.type != "cpu" or not torch.equal(generator.get_state(), before):
        return False
    own.manual_seed(own.initial_seed() ^ 1)
    follows = not torch.equal(generator.get_state(), before)
    own.set_state(before)
    return follows


class RandomStates:
    """Sets generators to recorded states, and puts the present ones back at the end.

    A context manager: the program's own states are back on leaving.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: dict[torch.Generator, torch.Tensor] = {}

    def set(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Give `generator` the state that it had."""
        if generator not in self._before:
            self._before[generator] = generator.get_state()
        generator.set_state(state)

    def set_all(self, drawn: Drawn) -> None:
        """Give all of some generators the states that they had."""
        for generator, state in drawn:
            self.set(generator, state)

    def __enter__(self) -> "RandomStates":
        return self

    def __exit__(self, *exception: object) -> None:
        # The last first: two objects may be one generator.
        for generator, state in reversed(self._before.items()):
            generator.set_state(state)
