"""Modules of FSDP2 inside a recording: gathered by themselves, recorded in sections.

`fully_shard` gathers a module's parameters before its forward, frees them after it, and
gathers them again for its backward. None of that is the program's: it is not recorded,
and parameters are read as what the program brought along. While a module is reversed
only its own parameters are there, so what is recomputed must not reach into another
one: a section begins where a module begins and ends, and what is read across that place
is held for good. No collective is repeated, whatever the budget, and processes whose
budgets or shapes differ never wait for one another.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from retape.engines.eager.trace._run import Run

_GATHERING = "FSDP::all_gather"


@contextmanager
def sections_at_sharded_modules(
    run: Run, paused: Callable[[], Any], is_recording: Callable[[], bool]
) -> Iterator[None]:
    """Begin a section of a run at both ends of each module of FSDP2.

    Args:
        run: What is recorded.
        paused: Makes a context in which nothing is recorded.
        is_recording: Tells whether the calling thread records into it.
    """
    # Hooks on all modules have the compiler compile anew: none if none is sharded.
    if not has_sharded_modules():
        yield
        return
    from torch.distributed.fsdp import FSDPModule

    def begin(module: nn.Module, *_: Any) -> None:
        if isinstance(module, FSDPModule) and is_recording():
            with paused():
                module.unshard()  # what its own hook does next, seen by nobody
            run.begin_section()

    def end(module: nn.Module, *_: Any) -> None:
        if isinstance(module, FSDPModule) and is_recording():
            run.begin_section()

    with ExitStack() as scope:
        scope.callback(register_module_forward_pre_hook(begin).remove)
        scope.callback(register_module_forward_hook(end).remove)
        yield


def has_sharded_modules() -> bool:
    """Tell whether `fully_shard` was ever called, which makes subclasses."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and bool(module.FSDPModule.__subclasses__())


def gathers(label: Any) -> bool:
    """Tell from its label whether a region of a profile gathers parameters.

    Modules that gather for a later one (`set_modules_to_forward_prefetch`) do so inside
    of their own hooks, where only this label shows it.
    """
    return isinstance(label, str) and label.startswith(_GATHERING)
