"""What PyTorch does without an operator, and is seen by replacing a function of it.

Each is replaced while something is recorded, and in threads that record nothing it does
what it did.

- Transforms of `torch.func` let nobody save tensors for their backward
  (`disable_saved_tensors_hooks`), and raise an error where somebody does. So while one
  of them is at work nothing is saved through handles: its operators are recorded, and
  what autograd saves of them is kept.
- `DistributedDataParallel` makes, in its second forward, the tensors anew in which
  gradients are summed over the processes. They stay, as gradients do, and are as large
  as all of these; as part of the program they were more than most budgets.
- NumPy, and whoever is given memory by DLPack, write without an operator. So the value
  is noted when it is handed over, and each later read compares: what has changed
  meanwhile is from then on an input of the program, which cannot be recomputed, and no
  longer the result of an operator.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from retape.engines.eager._function_levels import without_hooks
from retape.engines.eager._shared_change import SharedChange, Undo, replace

_REBUILD = "_rebuild_buckets"
_WAYS_OUT = ("numpy", "__dlpack__")
_told: list[Callable[[torch.Tensor], None]] = []


@contextmanager
def what_has_no_operator(
    is_recording: Callable[[], bool],
    paused: Callable[[], Any],
    note: Callable[[torch.Tensor], None],
) -> Iterator[None]:
    """Have all of it seen, or left out, inside of the block.

    Args:
        is_recording: Tells whether this thread records.
        paused: Makes a context in which this thread records nothing.
        note: Is told of each tensor whose memory is handed out, in every thread.
    """
    _told.append(note)
    try:
        with ExitStack() as scope:
            scope.enter_context(_transforms.made(is_recording))
            scope.enter_context(_ways_out.made())
            if dist.is_available() and dist.is_initialized():
                scope.enter_context(_buckets.made(paused))
            yield
    finally:
        _told.remove(note)


def _without_handles(is_recording: Callable[[], bool]) -> Undo:
    def make(usual: Any) -> Any:
        @contextmanager
        def replaced(message: str) -> Iterator[None]:
            with without_hooks() if is_recording() else nullcontext(), usual(message):
                yield

        return replaced

    return replace(torch.autograd.graph, "disable_saved_tensors_hooks", make)


def _unseen(paused: Callable[[], Any]) -> Undo:
    def make(usual: Any) -> Any:
        def rebuild(self: Any) -> Any:
            with paused():
                return usual(self)

        return rebuild

    reducer: Any = vars(dist).get("Reducer")
    if not hasattr(reducer, _REBUILD):  # another release has another way
        return lambda: None
    return replace(reducer, _REBUILD, make)


def _noted() -> Undo:
    def make(usual: Any) -> Any:
        def shared(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
            made = usual(tensor, *args, **named)
            for note in tuple(_told):
                note(tensor)
            return made

        return shared

    undone = [replace(torch.Tensor, name, make) for name in _WAYS_OUT]
    return lambda: [undo() for undo in undone]


_transforms = SharedChange(_without_handles)
_buckets = SharedChange(_unseen)
_ways_out = SharedChange(_noted)
