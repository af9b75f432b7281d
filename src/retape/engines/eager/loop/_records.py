"""Records of a loop: values, calls, snapshots."""

from typing import Any, NamedTuple

from torch import Tensor

from retape.engines.eager.trace._random_state import Drawn


class Slot(int):
    """Stands for a tensor among the arguments of a call."""

    __slots__ = ()


class Call(NamedTuple):
    """A function with its arguments, tensors as slots."""

    function: Any
    args: list[Any]
    kwargs: dict[str, Any] | None
    random: Drawn | None
    grad: bool


class LoopSnapshot(NamedTuple):
    """Tensors from which the calls at and after a position can be run."""

    position: int
    values: dict[int, Tensor]


def overwritten(tensor: Tensor) -> str:
    """The error of a tensor that was overwritten."""
    return (
        f"A tensor of shape `{tuple(tensor.shape)}`, which the program under "
        "`recompute(mode='loop')` read, was overwritten in place, so the calls that "
        "read it cannot be run again. Leave `mode` out, or write into a copy."
    )
