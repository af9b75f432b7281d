"""`DistributedDataParallel` inside a recording: its buckets are none of the program's.

In its second forward it makes the tensors anew in which gradients are summed over the
processes. They stay, as gradients do, and are as large as all of these; as part of the
program they were more than most budgets. PyTorch does it by a method of a compiled
class, which is replaced meanwhile; in threads that record nothing it does what it did.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

_REBUILD = "_rebuild_buckets"
_bucket_lock = threading.Lock()
_watching = 0
_usual_rebuild: Any = None


@contextmanager
def buckets_unseen(paused: Callable[[], Any]) -> Iterator[None]:
    """Let replicas make their buckets without being recorded.

    Args:
        paused: Makes a context in which this thread records nothing.
    """
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    _watch(+1, paused)
    try:
        yield
    finally:
        _watch(-1, paused)


def _watch(by: int, paused: Callable[[], Any]) -> None:
    global _watching, _usual_rebuild
    reducer: Any = vars(dist).get("Reducer")
    if not hasattr(reducer, _REBUILD):  # another release has another way
        return
    with _bucket_lock:
        if _watching == 0:
            _usual_rebuild = getattr(reducer, _REBUILD)
            setattr(reducer, _REBUILD, _unseen_rebuild(_usual_rebuild, paused))
        _watching += by
        if _watching == 0:
            setattr(reducer, _REBUILD, _usual_rebuild)


def _unseen_rebuild(original: Any, paused: Callable[[], Any]) -> Any:
    def rebuild(self: Any) -> Any:
        with paused():
            return original(self)

    return rebuild
