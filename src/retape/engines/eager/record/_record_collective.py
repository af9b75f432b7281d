"""Recording what is never run again: operators that talk to other processes, say.

What a collective gives depends on all processes, each of which would have to come to it
in the same order once more. So it becomes no step; what it fills becomes a value that
is held for good, counted in the budget. The operator may still be running when it
returns, and a program that waits does so where no operator shows it: nothing is read
here, and what was filled is not copied until the program overwrites it, or ends while
it holds it. By then it has waited.

Modules of FSDP2 are gathered by themselves, and recorded in sections: `fully_shard`
gathers a module's parameters before its forward, frees them after it, and gathers them
again for its backward. None of that is the program's: it is not recorded, and
parameters are read as what the program brought along. While a module is reversed only
its own parameters are there, so what is recomputed must not reach into another one: a
section begins where a module begins and ends, and what is read across that place is
held for good. No collective is repeated, whatever the budget, and processes whose
budgets or shapes differ never wait for one another. What FSDP2 itself holds at once is
beside the budget. All of it shows in regions of a profile, which PyTorch labels: also
where a method is called that was registered as a forward
(`register_fsdp_forward_method`).

`DistributedDataParallel` makes, in its second forward, the tensors anew in which
gradients are summed over the processes. They stay, as gradients do, and are as large as
all of these; as part of the program they were more than most budgets. So what its file
has PyTorch do is not recorded, and what is written there, buffers that are to be the
same in all processes, is read as what the program brought along.
"""

import sys
from collections.abc import Callable, Sequence
from inspect import currentframe
from itertools import islice
from traceback import walk_stack
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from retape._errors import UnsupportedError
from retape.engines.eager._torch_compile import OperatorWatch
from retape.engines.eager.trace._geometry import has_storage
from retape.engines.eager.trace._holdings import TAG, Buffer
from retape.engines.eager.trace._operator_traits import (
    OperatorTraits,
    nested_tensors,
    written_tensors,
)
from retape.engines.eager.trace._trace import Trace

Tensor = torch.Tensor
# Operators that are given functions, and write nothing.
_FUNCTIONAL = frozenset(
    {
        "associative_scan", "cond", "flex_attention", "flex_attention_backward",
        "map_impl", "scan", "while_loop", "while_loop_stack_output",
    }
)  # fmt: skip
_FLAT = "torch/distributed/fsdp/_flat_param.py"
_REPLICAS = "torch/nn/parallel/distributed.py"


def record_collective(
    trace: Trace,
    func: Any,
    kind: OperatorTraits,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run a collective; what it overwrites and makes is held for good.

    Args:
        trace: Where the values are held.
        func: An operator whose kind is `collective`.
        kind: Its kind.
        args: What it is called with.
        kwargs: Its keyword arguments.

    Returns:
        What it returns.
    """
    _refuse_flat_parameters(func)
    filled = list(written_tensors(kind, args, kwargs))
    for tensor in filled:
        buffer = trace.buffer_of(tensor)
        if trace.last_read[buffer.slot] >= 0 or not buffer.uninitialised:
            trace.before_write(buffer, tensor)
    read = sum(each.nbytes for each in nested_tensors([args, list(kwargs.values())]))
    trace.in_flight.read(read)
    return hold_results(trace, func(*args, **kwargs), filled)


def record_whole(
    trace: Trace,
    func: Any,
    kind: OperatorTraits,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run an operator whose tensors are no windows on storages, such as sparse ones.

    What it gives is held for good; a result without a storage is nobody's but the
    program's.
    """
    filled = [t for t in written_tensors(kind, args, kwargs) if has_storage(t)]
    for tensor in filled:
        trace.before_write(trace.buffer_of(tensor), tensor)
    return hold_results(trace, func(*args, **kwargs), filled)


def record_control_flow(trace: Trace, func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator that is given functions, `torch.cond` or `while_loop`, as one.

    Raises:
        UnsupportedError: If it is not known to write nothing, or one of its functions
            reads what gets a gradient and is no operand.
    """
    if func.name() not in _FUNCTIONAL:
        raise UnsupportedError(
            f"`{func.name()}` is given functions to run, and it is not known what they "
            "write, so it cannot be recorded. Call it outside of the recomputation."
        )
    closures = _Closures(args, kwargs)
    result = func(*closures.watched(args), **kwargs)
    if closures.shape is not None:
        raise UnsupportedError(
            f"A function given to `torch.{func.name()}` reads a tensor of shape "
            f"`{closures.shape}` that gets a gradient and is none of its operands. It "
            "runs eagerly inside of a recomputation, where PyTorch leaves that "
            "gradient out. Pass the tensor as an operand, or write `if` or a loop, "
            "which are exact."
        )
    if func.name() == "cond" and not isinstance(result, tuple | list):
        raise UnsupportedError(
            "`torch.cond` whose branches return a tensor runs eagerly inside of a "
            "recomputation, and PyTorch cannot differentiate it there. Write `if`, "
            "which is exact, or return a tuple from both branches."
        )
    if func.name() == "cond" and closures.scans and closures.differentiable:
        raise UnsupportedError(
            "A function given to `torch.cond` calls `scan`, which runs eagerly inside "
            "of a recomputation, and PyTorch cannot differentiate the two there. Write "
            "`if` for the one or a loop for the other, which are exact."
        )
    if func.name() == "map_impl" and closures.single and closures.differentiable:
        raise UnsupportedError(
            "`map` whose function returns a tensor runs eagerly inside of a "
            "recomputation, where PyTorch gives a tuple of one. Return a tuple from "
            "the function, or write a loop, which is exact."
        )
    return hold_results(trace, result, ())


class _Closures(OperatorWatch):
    """Looks for what gets a gradient and is no operand of a function.

    Below autograd, where the function runs, it would be left without that gradient.

    Attributes:
        shape: Of the last such tensor, if there was one.
        differentiable: Whether an operand gets a gradient.
        single: Whether a function returned a tensor.
        scans: Whether one called `scan`.
    """

    def __init__(self, args: Any, kwargs: dict[str, Any]) -> None:
        super().__init__()
        given = list(nested_tensors((args, list(kwargs.values()))))
        self.differentiable = any(each.requires_grad for each in given)
        self.single = self.scans = False
        self._storages = {_place(t) for t in given if has_storage(t)}
        self.shape: tuple[int, ...] | None = None

    def watched(self, args: Any) -> list[Any]:
        """Arguments of an operator, with functions that are looked into."""
        return [self._watched(a) if callable(a) else a for a in args]

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                result = function(*args, **kwargs)
            self.single |= isinstance(result, Tensor)
            return result

        return run

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            args = self.watched(args)
            self.scans |= func.name() == "scan"
        for each in nested_tensors((args, list((kwargs or {}).values()))):
            if each.requires_grad and has_storage(each):
                if _place(each) not in self._storages:
                    self.shape = tuple(each.shape)
        return func(*args, **(kwargs or {}))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def hold_results(trace: Trace, result: Any, filled: Sequence[Tensor]) -> Any:
    """Hold for good what was written and what was made."""
    for tensor in filled:
        trace.hold_for_good(trace.buffer_of(tensor), tensor)
    for tensor in nested_tensors(result):
        if not has_storage(tensor) or tensor.is_meta:
            continue
        storage = tensor.untyped_storage()
        if trace.buffer_on(storage) is None:
            slot = trace.new_slot(-1, storage.nbytes(), trace.geometries.of(tensor))
            buffer = Buffer(trace.owner, slot, storage.nbytes(), trace.counter)
            setattr(storage, TAG, buffer)
            trace.hold_for_good(buffer, tensor)
    return result


def _refuse_flat_parameters(func: Any) -> None:
    """Refuse FSDP1, which swaps the storage of its parameters behind autograd."""
    callers = walk_stack(currentframe())
    if any(frame.f_code.co_filename.endswith(_FLAT) for frame, _ in callers):
        raise UnsupportedError(
            f"`{func}` gathers the parameters of a `FullyShardedDataParallel` (FSDP1) "
            "inside of a recomputation. It swaps their storage where no operator shows "
            "it, so values could not be computed again. Shard with "
            "`torch.distributed.fsdp.fully_shard` (FSDP2), which is understood, or put "
            "regions into its units: "
            "`FullyShardedDataParallel(retape.torch.Checkpointed(unit))`."
        )


def is_of_replicas(kind: OperatorTraits) -> bool:
    """Tell whether an operator that is being recorded is `DistributedDataParallel`'s.

    The caller's caller is the frame that has called it.
    """
    if not (kind.writes or kind.uninitialised):
        return False
    frames = islice(walk_stack(currentframe()), 3)
    *_, caller = (frame.f_code.co_filename for frame, _ in frames)
    return caller.endswith(_REPLICAS)


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
    return sum(
        trace.nbytes[slot]
        for slot, note in trace.notes.items()
        if note.input is not None and note.first_read >= 0
    )


def has_sharded_modules() -> bool:
    """Tell whether `fully_shard` was ever called, which makes subclasses."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and bool(module.FSDPModule.__subclasses__())
