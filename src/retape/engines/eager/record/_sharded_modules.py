"""Modules of FSDP2 inside a recording: gathered by themselves, recorded in sections.

`fully_shard` gathers a module's parameters before its forward, frees them after it, and
gathers them again for its backward. None of that is the program's: it is not recorded,
and parameters are read as what the program brought along. While a module is reversed
only its own parameters are there, so what is recomputed must not reach into another
one: a section begins where a module begins and ends, and what is read across that place
is held for good. No collective is repeated, whatever the budget, and processes whose
budgets or shapes differ never wait for one another.

All of it shows in regions of a profile, which PyTorch labels: also where a method is
called that was registered as a forward (`register_fsdp_forward_method`).
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from retape._errors import RetapeWarning
from retape.engines.eager.record._sharded_memory import ShardedMemory
from retape.engines.eager.trace._run import Run

_BEGINS, _ENDS = "FSDP::pre_forward", "FSDP::post_forward"
# These have operators of the program in them: inputs are cast, or moved to a device.
_OF_THE_PROGRAM = ("FSDP::cast_", "FSDP::root_pre_forward", "FSDP::inputs_to_device")


def is_sharding(label: Any) -> bool:
    """Tell whether a region of a profile is FSDP2's, and none of the program's.

    Examples:
        >>> is_sharding("FSDP::all_gather (blocks.1)"), is_sharding("my region")
        (True, False)
    """
    return (
        isinstance(label, str)
        and label.startswith("FSDP::")
        and not label.startswith(_OF_THE_PROGRAM)
    )


class ShardedModules:
    """The sections that modules of FSDP2 make of a run, and the bytes they take."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._memory = ShardedMemory()
        self._is_known = True

    def enter(self, label: str) -> int | None:
        """A region begins that is none of the program's.

        Returns:
            If a module begins in it, the bytes that FSDP takes so far, or is about to.
        """
        if label.startswith(_BEGINS):
            self._run.begin_section()
            return self._counted(self._memory.begin)
        if label.startswith(_ENDS):
            self._run.begin_section()
            self._counted(self._memory.end)
        return None

    def of_backward(self) -> int:
        """The most bytes that FSDP took in the forward or takes in the backward."""
        return self._counted(self._memory.of_backward)

    def _counted(self, count: Callable[[], int]) -> int:
        """Bytes, or none where this release of PyTorch has them elsewhere."""
        if self._is_known:
            try:
                return count()
            except AttributeError as error:
                self._is_known = False
                warnings.warn(
                    f"PyTorch {torch.__version__} does not show what FSDP2 holds "
                    f"({error}), so it is not in the budget of `recompute`. Leave "
                    "room for it beside the budget.",
                    RetapeWarning,
                    stacklevel=2,
                )
        return 0


def has_sharded_modules() -> bool:
    """Tell whether `fully_shard` was ever called, which makes subclasses."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and bool(module.FSDPModule.__subclasses__())
