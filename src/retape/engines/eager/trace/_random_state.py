"""State of the generator that an operator draws from: saved and restored."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from retape.engines.eager._errors import UnsupportedError


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

    def __enter__(self) -> "RandomStates":
        return self

    def __exit__(self, *exception: object) -> None:
        for generator, state in self._before.items():
            generator.set_state(state)
