"""Front end C: long loops of small operators, recorded call by call.

Nothing is kept for autograd while the program runs: each call of a public function of
PyTorch runs without a graph and is noted, with the values that cross some positions as
snapshots. What leaves the block is then tied to one node of autograd, whose backward
runs the calls again stage by stage, with a graph this time, and goes back through each.

A call costs a fraction of what an operator costs below autograd, and a whole LSTM cell
is one call. What cannot be run again in this way is refused by name: in-place writes,
custom functions, gradients inside the block, autocast.
"""

import contextlib
import threading
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from retape._errors import RetapeError, UnsupportedError
from retape.engines.eager._function_levels import hooks_are_refused
from retape.engines.eager._limits import Limits
from retape.engines.eager._torch_compile import (
    OperatorWatch,
    compiled_code_runs_eagerly,
)
from retape.engines.eager.loop._backward import LoopSweep
from retape.engines.eager.loop._calls import Call, Calls
from retape.engines.eager.loop._function_traits import (
    CallKind,
    as_with_graph,
    attention_is_chosen,
    call_kind_of,
    chooses_kernel_by_gradient,
    is_fused,
)
from retape.engines.eager.trace._operator_traits import traits_of
from retape.engines.eager.trace._random_state import Draws
from retape.engines.eager.trace._report import Tally

_set_grad = torch._C._set_grad_enabled
_NO_CALL: dict[str, Any] = {}


_LEAVE_OUT = "Leave `mode` out, or keep it out of the block."


class CollectiveRefusal(OperatorWatch):
    """Refuses operators that talk to other processes: no public function shows them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, if it is none of them."""
        if traits_of(func).collective:
            raise UnsupportedError(
                f"`{func}` talks to other processes under `recompute(mode='loop')`, "
                "which would run it again in the backward. " + _LEAVE_OUT
            )
        return func(*args, **(kwargs or {}))


class LoopRecorder(TorchFunctionMode):
    """Notes the calls of one block into `calls`.

    Attributes:
        refusal: Why the block cannot be run again. Raised on leaving the block too:
            inside an arithmetic operator PyTorch takes a `TypeError` for its own.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls
        self.refusal: Exception | None = None
        accelerator = torch.accelerator.current_accelerator()
        others = () if accelerator is None else (accelerator.type,)
        self._devices = "cpu", *others

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one call without a graph, and note it if it makes tensors."""
        kind = call_kind_of(func)
        try:
            if kind is CallKind.CALL or kind is CallKind.RANDOM:
                return self._call(func, kind, args, kwargs)
            if kind is CallKind.REQUIRES_GRAD:
                return self.calls.differentiable(args[0])
            if kind is CallKind.REFUSED:
                raise UnsupportedError(
                    f"`{_name(func)}` was called under `recompute(mode='loop')`, which "
                    "cannot run it again: it writes in place, leaves memory "
                    "uninitialised, or asks for a graph that is not there yet. "
                    + _LEAVE_OUT
                )
        except RetapeError as error:
            self.refusal = error
            raise
        if kind is CallKind.GRAD_MODE:
            self.calls.grad = bool(args[0])
        return func(*args, **(kwargs or _NO_CALL))

    def _call(self, func: Any, kind: CallKind, args: Any, kwargs: Any) -> Any:
        calls, grad = self.calls, self.calls.grad
        autocast = any(map(torch.is_autocast_enabled, self._devices))
        if torch.is_grad_enabled() is not grad or autocast:
            raise UnsupportedError(
                f"`{_name(func)}` was called under autocast, in inference mode or "
                "inside an `autograd.Function`, which `recompute(mode='loop')` cannot "
                "run again. " + _LEAVE_OUT
            )
        if kwargs and kwargs.get("requires_grad"):
            raise UnsupportedError(
                f"`{_name(func)}(requires_grad=True)` makes a leaf under "
                "`recompute(mode='loop')`, which would get no gradient: its calls run "
                "without a graph. Make it before the block."
            )
        if calls.memory is not None and kind is CallKind.RANDOM and is_fused(func):
            raise UnsupportedError(
                f"`{_name(func)}` runs a whole layer as one call, and how many bytes "
                "that takes to reverse is not known, so `recompute(mode='loop')` "
                "cannot keep it within `memory`. Give `snapshots` instead, use cells "
                "such as `LSTMCell`, or leave `mode` out."
            )
        if kind is CallKind.RANDOM and "attention" in _name(func):
            if attention_is_chosen():
                raise UnsupportedError(
                    f"`{_name(func)}` was called under `sdpa_kernel(...)`, another "
                    "choice of kernels than its backward may find, where "
                    "`recompute(mode='loop')` runs it again. " + _LEAVE_OUT
                )
        reads: list[int] = []
        given = [calls.encode(value, reads) for value in args]
        named = (
            {name: calls.encode(value, reads) for name, value in kwargs.items()}
            if kwargs
            else None
        )
        if grad and chooses_kernel_by_gradient(func):
            if any(calls.needs[slot] for slot in reads):
                func = as_with_graph(func)
        draws = Draws() if kind is CallKind.RANDOM else contextlib.nullcontext()
        try:
            _set_grad(False)
            with draws:
                result = func(*args, **kwargs) if kwargs else func(*args)
        finally:
            _set_grad(grad)
        drawn = calls.drawn(draws) if isinstance(draws, Draws) else None
        call = Call(func, given, named, drawn, grad)
        return noted(calls, call, reads, result)


def noted(calls: Calls, call: Call, reads: list[int], result: Any) -> Any:
    """The result of a call, which is noted if it is made of tensors."""
    if isinstance(result, Tensor):
        calls.add(call, reads, (result,), True)
    elif isinstance(result, tuple | list) and result:
        if all(isinstance(item, Tensor) for item in result):
            calls.add(call, reads, result, False)
        elif any(isinstance(item, Tensor) for item in result):
            raise UnsupportedError(
                f"`{_name(call.function)}` returned tensors among other things, which "
                "`recompute(mode='loop')` cannot note. " + _LEAVE_OUT
            )
    return result


def _name(func: Any) -> str:
    owner = getattr(func, "__self__", None)
    return getattr(owner if func.__name__ == "__get__" else func, "__name__", str(func))


_NO_HOOKS = (
    "Hooks on saved tensors were put on inside of `recompute(mode='loop')`, where "
    "nothing is saved: they would never be called. " + _LEAVE_OUT
)
_loops = threading.local()


def in_loop() -> bool:
    """Tell whether this thread notes the calls of a loop."""
    return getattr(_loops, "open", 0) > 0


class LoopNode(torch.autograd.Function):
    """The node that stands for a whole block."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Tie the tensors that leave the block to this node."""
        ctx.sweep, ctx.slots, ctx.foreign, leaving = args[:4]
        ctx.leaving = tuple(map(ref, leaving))
        ctx.set_materialize_grads(False)
        return leaving

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        """Cotangents of what the program brought along."""
        if torch.is_grad_enabled():
            raise UnsupportedError(
                "a block under `recompute(mode='loop')` was reversed with "
                "`create_graph=True`, but its backward has no graph. Leave `mode` out."
            )
        for slot, tensor in zip(ctx.slots, ctx.leaving, strict=True):
            _refuse_late_hooks(ctx.sweep.calls, slot, tensor())
        given = {
            slot: cotangent
            for slot, cotangent in zip(ctx.slots, cotangents, strict=True)
            if cotangent is not None
        }
        found = ctx.sweep.run(given)
        return (None, None, None, None, *(found.get(slot) for slot in ctx.foreign))


def _refuse_late_hooks(calls: Calls, slot: int, tensor: Tensor | None) -> None:
    """Refuse hooks on a value that others of the block were computed from.

    To autograd it is one result beside theirs: it would be told of a part of its
    gradient, and what it makes of that would not reach them.
    """
    if tensor is None or not (tensor._backward_hooks or tensor.retains_grad):
        return
    if calls.leads_on(slot):
        raise UnsupportedError(
            f"A hook, or `retain_grad()`, was put on a tensor of shape "
            f"`{tuple(tensor.shape)}` from which others were computed under "
            "`recompute(mode='loop')`; it would see no more of its gradient than what "
            "comes from outside of the block. Leave `mode` out."
        )


class LoopBlock:
    """One block under `recompute(mode="loop")`, from its beginning to its node."""

    def __init__(self, limits: Limits, tally: Tally) -> None:
        self._calls = Calls(limits.memory, limits.snapshots, limits.stage)
        self._tally = tally
        self._recorder = LoopRecorder(self._calls)

    def __enter__(self) -> "LoopBlock":
        with contextlib.ExitStack() as scope:  # undone if Ctrl-C comes between
            scope.enter_context(compiled_code_runs_eagerly())
            scope.enter_context(hooks_are_refused(_NO_HOOKS))
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                scope.enter_context(CollectiveRefusal())
            scope.enter_context(self._recorder)
            scope.callback(setattr, _loops, "open", getattr(_loops, "open", 0))
            _loops.open = getattr(_loops, "open", 0) + 1
            self._scope = scope.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._scope.__exit__(*exception)
        refusal = self._recorder.refusal
        if isinstance(exception[1], RuntimeError) and str(exception[1]) == _NO_HOOKS:
            refusal = UnsupportedError(_NO_HOOKS)
        if refusal is not None and exception[1] is not refusal:
            raise refusal from exception[1]
        if exception[0] is not None:
            return
        calls, tally = self._calls, self._tally
        tally.steps, tally.snapshots = len(calls.calls), len(calls.snapshots)
        leaving = calls.finish()
        foreign = {s: t for s, t in calls.foreign.items() if t.requires_grad}
        if not leaving or not foreign or not torch.is_grad_enabled():
            return
        calls.check_budget()
        sweep, slots = LoopSweep(calls, tally), tuple(leaving)
        LoopNode.apply(
            sweep, slots, tuple(foreign), tuple(leaving.values()), *foreign.values()
        )
