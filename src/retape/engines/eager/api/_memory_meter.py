"""Bytes alive in a PyTorch program over time, counted where operators are dispatched.

The count knows nothing of plans: it adds the storage of each result and subtracts it
when that dies. So it shows what a budget does, and would show one without effect. On
CUDA the caching allocator tells: it knows of what kernels hold for themselves as well,
and rounds as it does.
"""

from collections.abc import Callable
from itertools import count
from math import inf
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from retape.driver._memory_trace import MemoryTrace, Meter, Moment, Sample
from retape.engines.eager._limits import BACKWARD_NUMBERS
from retape.engines.eager.record._dispatch_mode import active_recorder
from retape.engines.eager.trace._holdings import Buffer, Counter
from retape.engines.eager.trace._run import Run

# One name for each meter: of two, one inside of the other, each counts.
_marks = map("_retape_counted_{}".format, count())


class MemoryMeter(TorchDispatchMode):
    """Counts the bytes of tensors that a program makes, over its operators.

    Open it around the forward and the backward, with a `recompute` or without one.
    Tensors on CUDA are counted by its allocator, less what was there before.
    `retape.viz.timeline(meter)` draws it: as areas what the recomputation holds for the
    backward and what the program works on, by its own account; as a line what is alive.

    Attributes:
        memory: What was counted, once the block is over.

    Examples:
        >>> import torch, retape.torch
        >>> model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
        >>> def peak(memory):
        ...     with retape.torch.MemoryMeter() as meter:
        ...         with retape.torch.recompute(memory=memory):
        ...             loss = model(torch.ones(1024, 64)).sum()
        ...         loss.backward()
        ...     return meter.memory.measured_peak
        >>> peak("2.4MB") < 0.5 * peak("1GB")
        True
    """

    def __init__(self) -> None:
        super().__init__()
        self._total, self._mark = Counter(), next(_marks)
        self._allocated = _allocator()
        self._before = 0
        self._meter = Meter()
        self._moments: list[Moment] = []
        self._run: Run | None = None
        self._budget: int | None = None
        self._operators, self._stride = 0, 1
        self._began = perf_counter()
        self.memory: MemoryTrace | None = None

    def __enter__(self) -> Self:
        self._began = perf_counter()
        if self._allocated is not None:
            self._before = self._allocated()
        super().__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        self._run = None
        self.memory = MemoryTrace(
            tuple(self._moments),
            tuple(self._meter.samples),
            "alive, counted at dispatch"
            if self._allocated is None
            else "alive, by CUDA's allocator",
            unit="operators run, forward and backward",
            budget=self._budget,
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                storage = leaf.untyped_storage()
                told = self._allocated is not None and leaf.device.type == "cuda"
                if not told and getattr(storage, self._mark, None) is None:
                    counted = Buffer(None, -1, storage.nbytes(), self._total)
                    setattr(storage, self._mark, counted)
        self._operators += 1
        spent = perf_counter() - self._began
        self._meter.add(Sample(self._operators, self._alive(), spent, 0))
        self._account()
        return result

    def _alive(self) -> int:
        if self._allocated is None:
            return self._total.live
        return self._total.live + self._allocated() - self._before

    def _account(self) -> None:
        """The bytes that the recomputation counts, now and then."""
        recorder = active_recorder()
        if recorder is not None:
            self._run = recorder.run
            left = recorder.run.trace.memory
            if left < inf:
                self._budget = int(left) + BACKWARD_NUMBERS
        run = self._run
        if run is None or self._operators % self._stride:
            return
        trace = run.trace
        held = sum(trace.nbytes[slot] for slot in trace.held.storages)
        working = max(0, trace.counter.live - held)
        self._moments.append(Moment(self._operators, held, 0, working, 0))
        if len(self._moments) == 4096:
            pairs = zip(self._moments[::2], self._moments[1::2], strict=True)
            self._moments = [max(pair, key=lambda m: m.total) for pair in pairs]
            self._stride *= 2


def _allocator() -> Callable[[], int] | None:
    """The bytes in tensors on CUDA, all of its devices; `None` without CUDA."""
    if not torch.cuda.is_available():
        return None
    devices = range(torch.cuda.device_count())
    return lambda: sum(torch.cuda.memory_allocated(each) for each in devices)
