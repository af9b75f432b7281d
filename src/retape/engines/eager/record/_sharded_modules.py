"""Modules of FSDP2 inside a recording: gathered by themselves, recorded in sections.

`fully_shard` gathers a module's parameters before its forward, frees them after it, and
gathers them again for its backward. None of that is the program's: it is not recorded,
and parameters are read as what the program brought along. While a module is reversed
only its own parameters are there, so what is recomputed must not reach into another
one: a section begins where a module begins and ends, and what is read across that place
is held for good. No collective is repeated, whatever the budget, and processes whose
budgets or shapes differ never wait for one another. What FSDP2 itself holds at once is
beside the budget.

All of it shows in regions of a profile, which PyTorch labels: also where a method is
called that was registered as a forward (`register_fsdp_forward_method`).
"""

import sys
from typing import Any

from retape.engines.eager.trace._trace import Trace

_BOUNDARIES = "FSDP::pre_forward", "FSDP::post_forward"
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


def is_boundary(label: str) -> bool:
    """Tell whether a module begins or ends in such a region."""
    return label.startswith(_BOUNDARIES)


def gathered_bytes(trace: Trace) -> int:
    """The bytes of the parameters that a run has read and that get a gradient."""
    return sum(trace.nbytes[slot] for slot in trace.foreign if slot in trace.gradients)


def has_sharded_modules() -> bool:
    """Tell whether `fully_shard` was ever called, which makes subclasses."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and bool(module.FSDPModule.__subclasses__())
