"""A backend of the compiler whose graphs are steps of a recording.

It has a graph compiled by the backend that the program chose, and takes the compiled
forward before the compiler wraps it up: below autograd, where it is a function from
tensors to tensors. While something is recorded, a call of it becomes one step. A graph
that cannot be one runs eagerly, operator by operator.
"""

import copy
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._guards import TracingContext

from retape.engines.eager._compiled_region import CompiledRegion, RegionBytes
from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager.record._dispatch_mode import active_recorder
from retape.engines.eager.regions._footprint import Footprint, footprint
from retape.engines.eager.regions._graph_traits import (
    region_traits,
    symbols_of,
    why_no_graph,
    why_no_region,
    why_no_reverse,
)
from retape.engines.eager.regions._quiet import unseen
from retape.engines.eager.regions._record_region import run_region
from retape.engines.eager.regions._region_cost import graph_cost

Compiled = Callable[[list[Any]], Any]
_seam_lock = threading.Lock()
_REGION_NAME = "retape::compiled_region"


class RegionBackend:
    """Compiles graphs as another backend does, for recordings.

    The compiler keeps what it has compiled by the backend it was compiled for, so these
    are apart from what the program compiles outside of recordings.
    """

    def __init__(self, users: Callable[..., Any], known: bool) -> None:
        self.users, self.known = users, known
        function = getattr(users, "compiler_fn", users)
        name = getattr(users, "compiler_name", None) if users is function else None
        self.__name__ = name or getattr(function, "__name__", type(function).__name__)

    def __call__(
        self, graph: fx.GraphModule, inputs: Sequence[Any], **more: Any
    ) -> Callable[..., Any]:
        """Compile one graph, as the compiler calls it."""
        if self.__name__ == "eager":  # its operators are recorded one by one
            return self.users(graph, inputs, **more)
        eagerly = fx.GraphModule(graph, copy.deepcopy(graph.graph))
        why = why_no_graph(inputs)
        if not self.known:
            why = f"it is not known how the backend `{self.__name__}` compiles"
        if why is None:
            seam = _Seam()
            with seam.cut():
                compiled = self.users(graph, inputs, **more)
            why = seam.why
            if why is None and seam.graphs:
                return compiled
        return _with_a_warning(
            eagerly, why or f"the backend `{self.__name__}` compiles it in its own way"
        )


class _Seam:
    """Where the compiler hands graphs to the compilers of forward and backward.

    Attributes:
        why: The reason why one of the graphs can be no step.
        graphs: How many forwards were compiled.
    """

    def __init__(self) -> None:
        self.why: str | None = None
        self.graphs = 0
        self._coming: fx.Graph | None = None
        self._reverse: Footprint | None = None
        self._symbols: list[Any] = []
        self._closed = False

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Take what is compiled meanwhile; the compiler's own lock is held."""
        from torch._dynamo.backends.common import AotAutograd

        usual: Any = AotAutograd.__call__

        def taken(aot: Any, graph: Any, inputs: Any, **more: Any) -> Any:
            if _has_static_buffers(inputs):
                self.why = "CUDA graphs give each run the same memory"
            return usual(AotAutograd(**self._wrapped(aot.kwargs)), graph, inputs)

        with _seam_lock, mock.patch.object(AotAutograd, "__call__", taken):
            yield
        self._closed = True

    def _wrapped(self, options: dict[str, Any]) -> dict[str, Any]:
        from torch._functorch.partitioners import default_partition

        forward = options["fw_compiler"]
        return {
            **options,
            "fw_compiler": self._forward(forward),
            "inference_compiler": self._forward(
                options.get("inference_compiler") or forward
            ),
            "bw_compiler": self._backward(options.get("bw_compiler") or forward),
            "partition_fn": self._partition(
                options.get("partition_fn") or default_partition
            ),
        }

    def _partition(self, partition: Callable[..., Any]) -> Callable[..., Any]:
        """The backward is compiled when it is first run: too late for a budget."""

        def split(*joint: Any, **more: Any) -> Any:
            forward, backward = partition(*joint, **more)
            self._coming = backward.graph
            return forward, backward

        return split

    def _forward(self, compiler: Callable[..., Any]) -> Callable[..., Compiled]:
        def compile_forward(graph: fx.GraphModule, inputs: Any) -> Compiled:
            self.graphs += 1
            made = footprint(graph.graph)
            self.why = self.why or why_no_region(graph.graph, made)
            if self.why is not None:
                return _nothing()
            kind = region_traits(graph.graph)
            results, cost = _results_of(graph), graph_cost(graph.graph)
            symbols = symbols_of(graph.graph)
            self._symbols = [symbol for _, symbol in symbols]
            coming, self._coming = self._coming, None
            if coming is not None and self._refuses_reverse(coming):
                return _nothing()
            run = _boxed(compiler(graph, inputs))

            def bytes_for(args: Sequence[Any]) -> RegionBytes:
                sizes = {symbol: args[place] for place, symbol in symbols}
                forward, kept = made.peak(sizes), made.returned(sizes)
                back = self._reverse
                taken = 0
                if back is not None:
                    taken = max(0, back.peak(sizes) - back.returned(sizes))
                return RegionBytes(forward, max(0, forward - kept), taken)

            region = CompiledRegion(_REGION_NAME, kind, results, cost, run, bytes_for)

            def call(args: list[Any]) -> Any:
                recorder = active_recorder()
                if recorder is None or recorder.paused:
                    return run(args)
                return run_region(recorder, region, args)

            return _boxed(call, True)

        return compile_forward

    def _backward(self, compiler: Callable[..., Any]) -> Callable[..., Compiled]:
        def compile_backward(graph: fx.GraphModule, inputs: Any) -> Compiled:
            if self._refuses_reverse(graph.graph):
                return _nothing()
            with unseen():
                return compiler(graph, inputs)

        return compile_backward

    def _refuses_reverse(self, graph: fx.Graph) -> bool:
        """Note the bytes of a backward; whether it keeps its graph from being a step.

        Raises:
            UnsupportedError: If the forward is compiled, and was run as a step.
        """
        made = footprint(graph)
        why = why_no_reverse(graph, made, self._symbols)
        if why is not None and self._closed:
            raise UnsupportedError(
                f"A compiled function was called under `recompute`, and {why}, "
                "which shows only now that the compiler has come to the backward. "
                "Compile it with `dynamic=False`, or call it outside."
            )
        self.why, self._reverse = self.why or why, made
        return self.why is not None


def _results_of(graph: fx.GraphModule) -> int:
    """How many results are the program's; after them comes what is saved."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    every = len(graph.graph.output_node().args[0])  # pyright: ignore[reportArgumentType]
    return every if metadata is None else min(every, metadata.num_forward)


def _has_static_buffers(inputs: Sequence[Any]) -> bool:
    devices = {each.device.type for each in inputs if isinstance(each, torch.Tensor)}
    config: Any = sys.modules.get("torch._inductor.config")
    return "cuda" in devices and config is not None and config.triton.cudagraphs


def _boxed(function: Callable[..., Any], takes_list: bool = False) -> Compiled:
    """A compiled function in the form that takes its arguments as one list."""
    if takes_list or getattr(function, "_boxed_call", False):
        setattr(function, "_boxed_call", True)  # noqa: B010
        return function
    return _boxed(lambda args: function(*args), True)


def _nothing() -> Compiled:
    """What stands for a compiled graph that is thrown away."""
    return _boxed(lambda args: None, True)


def _with_a_warning(graph: fx.GraphModule, why: str) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        recorder = active_recorder()
        if recorder is not None and not recorder.run.trace.warned:
            recorder.run.trace.warned = True
            warnings.warn(
                "A function compiled by `torch.compile` was called under `recompute`, "
                f"and cannot be one step of its record: {why}. It runs eagerly there: "
                "results are the same, the speed is not.",
                stacklevel=2,
            )
        return graph(*args)

    return run
