"""The dispatch mode that sees every operator below autograd."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from retape._errors import UnsupportedError
from retape.engines.eager._kernel_workspace import workspace_bytes
from retape.engines.eager._replaced import what_has_no_operator
from retape.engines.eager._torch_compile import OperatorWatch
from retape.engines.eager._wrapper_tensors import (
    SavedWhole,
    SavedWrapper,
    is_wrapper,
)
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.record._record_collective import (
    gathered_bytes,
    is_boundary,
    is_of_replicas,
    is_sharding,
    record_collective,
    record_control_flow,
)
from retape.engines.eager.record._record_operator import (
    note_random_state,
    note_reshaped,
    record,
)
from retape.engines.eager.trace._fingerprint import hand_out
from retape.engines.eager.trace._geometry import has_storage
from retape.engines.eager.trace._holdings import native_for
from retape.engines.eager.trace._note import Input
from retape.engines.eager.trace._operator_traits import (
    METADATA,
    OperatorTraits,
    traits_of,
    written_tensors,
)
from retape.engines.eager.trace._random_state import default_generator
from retape.engines.eager.trace._run import ForeignView, Run

_active = threading.local()
_graph_task = torch._C._current_graph_task_id
_NOTHING: dict[str, Any] = {}


def active_recorder() -> "Recorder | None":
    """The recorder of this thread, if one is recording."""
    return getattr(_active, "recorder", None)


@contextmanager
def paused_recording() -> Iterator[None]:
    """Context manager: operators inside are not recorded."""
    recorder = active_recorder()
    if recorder is None:
        yield
        return
    before, recorder.paused = recorder.paused, True
    try:
        yield
    finally:
        recorder.paused = before


def unpack(saved: Any) -> torch.Tensor:
    """The tensor that a saved object stands for."""
    if active_recorder() is None:
        return _value(saved)
    with paused_recording():
        return _value(saved)


def _value(saved: Any) -> torch.Tensor:
    if isinstance(saved, torch.Tensor):
        return saved
    if isinstance(saved, SavedWrapper):
        return saved.value(_value)
    if isinstance(saved, Input | ForeignView | SavedWhole):
        return saved.value()
    return saved.run.value_of(saved)  # a handle, perhaps of compiled code


class Recorder(OperatorWatch):
    """Records the operators of one thread into a run.

    Attributes:
        shapes: Makes tensors without values of others, if the program is to have none.
        pack: What autograd calls for a tensor that it saves.
        unpack: What autograd calls when it needs that tensor again.
    """

    # What compiled code reads at each operator has a fixed place.
    __slots__ = ("paused",)

    def __init__(self, run: Run, keeper: Keeper) -> None:
        super().__init__()
        self.run = run
        self.shapes: Callable[[torch.Tensor], torch.Tensor] | None = None
        self.keeper = keeper
        self.paused = self._passed_on = False
        self._regions = 0  # of a profile, in which nothing is the program's
        self._replicas = dist.is_available() and dist.is_initialized()
        trace = run.trace
        run.compiled = native_for(trace) is not None
        module = None if trace.without_values else native_for(trace)
        watched = trace.verify or trace.keep is not None
        self._native: Any = None if watched else module
        # Compiled code knows one stream of its own, the default one.
        handles = module if trace.streams.default else None
        self.pack: Callable[[torch.Tensor], Any] = run.pack
        self.unpack: Callable[[Any], torch.Tensor] = unpack
        if handles is not None:
            self.unpack = handles.unpacker(unpack)
        if module is not None and not watched:
            self._session = module.open(trace, run, traits_of)
            self.pack = self.pack if handles is None else module.packer(self._session)

    def __enter__(self) -> "Recorder":
        with ExitStack() as scope:  # all of it is undone if Ctrl-C comes between
            scope.enter_context(what_has_no_operator(active_recorder))
            super().__enter__()
            scope.push(super().__exit__)
            if self._native is not None:
                self._native.enter(self._session, self, self.keeper)
                scope.callback(self._native.leave)
            scope.callback(setattr, _active, "recorder", None)
            _active.recorder = self
            self._scope = scope.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._scope.__exit__(*exception)
        if self.run.sections:
            self.run.tally.sharding = gathered_bytes(self.run.trace)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operator, recorded if it makes or overwrites a value."""
        if types:
            if func in METADATA:  # C++ asks, and an error there ends the process
                return func(*args, **(kwargs or {}))
            if FakeTensor in types:
                if self.shapes is None:  # the compiler asks for them
                    return func(*args, **(kwargs or {}))
                types = ()
            if types:
                _refuse_unseen_writes(func, types)
                return self._on_wrappers(func, args, kwargs or {})
        if self.shapes is not None:
            args, kwargs = tree_map_only(torch.Tensor, self.shapes, (args, kwargs))
        if not isinstance(func, OpOverload):
            return self._control_flow(func, args, kwargs or {})
        if self.paused:
            return self._unseen(func, args, kwargs or {})
        kind = traits_of(func)
        if kind.aside:
            return self._aside(func, args, kwargs or {})
        if kind.view:
            return func(*args, **kwargs) if kwargs else func(*args)
        run = self.run
        # No public function tells whether the engine is at work.
        backward = _graph_task() != -1 and not torch.is_grad_enabled()
        if backward or self._replicas and is_of_replicas(kind):
            return self._unrecorded(func, kind, args, kwargs or {})
        trace = run.trace
        if kind.scratch or (kind.copying and trace.memory < inf):
            workspace = workspace_bytes(func._schema.name, args)
            self.keeper.make_room(workspace.beforehand)
        if kind.collective:
            result = record_collective(trace, func, kind, args, kwargs or _NOTHING)
        else:
            result = record(trace, func, kind, args, kwargs or _NOTHING)
        counter = trace.counter
        if counter.live > counter.peak:
            counter.peak = counter.live
        if counter.live > trace.limit or len(trace.steps) >= trace.next_cut:
            self.keeper.relieve()
        return result

    def about_to_draw(self, step: int, storage: torch.UntypedStorage) -> None:
        """Compiled code runs an operator that draws where a storage is."""
        generator = default_generator(storage.device)
        note_random_state(self.run.trace, step, generator)

    def hand_out(self, tensor: torch.Tensor) -> None:
        """The memory of a tensor is given to another library."""
        on_host = tensor.device.type == "cpu" and tensor.layout is torch.strided
        if on_host and not self.paused:
            with paused_recording():  # a copy of ours is no operator of the program's
                hand_out(self.run.trace, tensor.untyped_storage())

    def _control_flow(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that is given functions."""
        if self.paused or _graph_task() != -1:
            return func(*args, **kwargs)
        return record_control_flow(self.run.trace, func, args, kwargs)

    def _aside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that makes no value.

        A region of a profile may be none of the program's.
        """
        result = func(*args, **kwargs)
        if func.namespace == "aten":
            note_reshaped(self.run.trace, args[0])
        elif args and is_sharding(args[0]):
            self._regions, self.paused = 1, True
            if is_boundary(args[0]) and _graph_task() == -1:  # not in a backward
                self.run.begin_section()
        return result

    def _unseen(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that is none of the program's."""
        result = func(*args, **kwargs)
        if self._regions and func.namespace == "profiler":
            self._regions += 1 if "_enter" in func.__name__ else -1
            self.paused = self._regions > 0
        return result

    def _unrecorded(
        self, func: Any, kind: OperatorTraits, args: Any, kwargs: Any
    ) -> Any:
        """Run an operator of a backward, say: no part of what is to be recomputed."""
        for tensor in written_tensors(kind, args, kwargs):
            if has_storage(tensor):
                self.run.trace.forget(tensor)
        return func(*args, **kwargs)

    def _on_wrappers(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Let wrappers say what an operator does; the operators inside are recorded.

        Wrappers get gradients, and what they wrap does not show it.
        """
        if self._passed_on:
            self._passed_on = False
            return NotImplemented
        trace = self.run.trace
        before, trace.opaque = trace.opaque, True
        self._passed_on = True
        OperatorWatch.__enter__(self)
        try:
            return func(*args, **kwargs)
        finally:
            OperatorWatch.__exit__(self, None, None, None)
            trace.opaque = before
            self._passed_on = False


def _refuse_unseen_writes(func: Any, types: Any) -> None:
    """Refuse a write that a class may do where no operator shows it."""
    if not isinstance(func, OpOverload) or not traits_of(func).writes:
        return
    names = sorted({kind.__name__ for kind in types if not is_wrapper(kind)})
    if names:
        raise UnsupportedError(
            f"`{func}` writes into a tensor of type `{', '.join(names)}`, and what "
            "that class overwrites is not known, so it cannot be recomputed. Only "
            "wrappers that PyTorch can take apart are understood (with "
            "`__tensor_flatten__`, such as `DTensor`): unwrap the tensors before the "
            "recomputation, or write into a copy."
        )
