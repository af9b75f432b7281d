"""The dispatch mode that sees every operator below autograd."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._errors import UnsupportedError
from ._keep import Keeper
from ._kinds import kind_of
from ._native import native_for
from ._record import record
from ._run import Run

_active = threading.local()
_graph_task = torch._C._current_graph_task_id
_NOTHING: dict[str, Any] = {}


def active_recorder() -> "Recorder | None":
    """The recorder of this thread, if one is recording."""
    return getattr(_active, "recorder", None)


@contextmanager
def paused_recording() -> Iterator[None]:
    """What runs inside is not part of the program."""
    recorder = active_recorder()
    if recorder is None:
        yield
        return
    before, recorder.paused = recorder.paused, True
    try:
        yield
    finally:
        recorder.paused = before


class Recorder(TorchDispatchMode):
    """Records the operators of one thread into a run.

    Attributes:
        pack: What autograd calls for a tensor that it saves.
        unpack: What autograd calls when it needs that tensor again.
    """

    __slots__ = ("paused",)

    def __init__(
        self, run: Run, keeper: Keeper, unpack: Callable[[Any], torch.Tensor]
    ) -> None:
        super().__init__()
        self.run = run
        self.keeper = keeper
        self.paused = False
        trace = run.trace
        module = native_for(trace)
        watched = trace.verify or trace.keep is not None
        self._native: Any = None if watched else module
        run.native = module
        self.pack: Callable[[torch.Tensor], Any] = run.pack
        self.unpack: Callable[[Any], torch.Tensor] = unpack
        if module is not None:
            self.unpack = module.unpacker(unpack)
        if module is not None and not watched:
            self._session = module.open(trace, run, kind_of, watched)
            self.pack = module.packer(self._session)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without a wrapper that costs a microsecond at each operator."""
        return False

    def __enter__(self) -> "Recorder":
        _active.recorder = self
        super().__enter__()
        if self._native is not None:
            self._native.enter(self._session, self, self.keeper)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._native is not None:
            self._native.leave()
        super().__exit__(*exception)
        _active.recorder = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operator, recorded if it makes or overwrites a value."""
        kind = kind_of(func)
        if kind.view or self.paused:
            return func(*args, **kwargs) if kwargs else func(*args)
        if types:
            raise _subclass_error(func, types)
        run = self.run
        # No public function tells whether the engine is at work.
        if _graph_task() != -1 and not torch.is_grad_enabled():
            return self._unrecorded(func, kind.writes, args, kwargs or {})
        trace = run.trace
        result = record(trace, func, kind, args, kwargs or _NOTHING)
        if trace.counter.live > trace.limit or len(trace.steps) >= trace.next_cut:
            self.keeper.relieve()
        return result

    def _unrecorded(
        self, func: Any, writes: tuple[int | str, ...], args: Any, kwargs: Any
    ) -> Any:
        """Run an operator of a backward: no part of what is to be recomputed."""
        for where in writes:
            value = kwargs.get(where) if isinstance(where, str) else args[where]
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, torch.Tensor):
                    self.run.trace.forget(item)
        return func(*args, **kwargs)


def _subclass_error(func: Any, types: Any) -> UnsupportedError:
    names = ", ".join(sorted({kind.__name__ for kind in types}))
    return UnsupportedError(
        f"`{func}` was called on tensors of type `{names}`, whose storage is not their "
        "value (distributed, quantised or fake tensors), so it cannot be recomputed "
        "from storages. Use `retape.torch.checkpoint` around these modules instead."
    )
