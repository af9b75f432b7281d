"""Recording one operator: it is run, and becomes a step on the slots of a trace."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch import UntypedStorage as Storage

from retape._errors import UnsupportedError
from retape.engines.eager._torch_compile import warn_of_compiled_code
from retape.engines.eager._wrapper_tensors import writes_of
from retape.engines.eager.analysis._cotangent_bytes import cotangent_bytes
from retape.engines.eager.record._measure_kernel import run_and_measure
from retape.engines.eager.record._record_collective import (
    hold_results,
    record_whole,
)
from retape.engines.eager.trace._fingerprint import clear, fingerprint_of
from retape.engines.eager.trace._geometry import has_storage
from retape.engines.eager.trace._holdings import TAG, Buffer
from retape.engines.eager.trace._operator_traits import (
    PARTLY_WRITTEN,
    OperatorTraits,
    nested_tensors,
    written_tensors,
)
from retape.engines.eager.trace._random_state import generator_for
from retape.engines.eager.trace._step import Signature, Step, constant_key
from retape.engines.eager.trace._trace import Trace

_new_step = tuple.__new__


def record(
    trace: Trace, func: Any, kind: OperatorTraits, args: Any, kwargs: dict[str, Any]
) -> Any:
    """Run an operator and add it to the trace."""
    step, grad, owner = len(trace.steps), torch.is_grad_enabled(), trace.owner
    key: list[Any] = [func, grad, trace.opaque, torch.get_default_dtype()]
    reads: list[int] = []
    for position, value in enumerate(args):
        if isinstance(value, Tensor):  # `_read`, written out: the hot path
            if not has_storage(value):
                return record_whole(trace, func, kind, args, kwargs)
            storage = value.untyped_storage()
            buffer = getattr(storage, TAG, None)
            if buffer is None or buffer.owner is not owner or buffer.uninitialised:
                _read(trace, value, position, kind, key, reads, step)
                continue
            if writes_of(value) > buffer.version + kind.counted:
                trace.written_unseen(buffer, value)
            slot, made = buffer.slot, trace.producer[buffer.slot]
            if -1 < made < trace.section:
                slot, made = trace.carry_over(buffer, value), -1
            reads.append(slot)
            key.append(trace.geometries.of(value))
            key.append(value.requires_grad)
            trace.last_read[slot] = step
            if -1 < made < trace.opened.position:
                trace.needed_by_snapshot(slot, storage)
        elif value.__class__ is int or value is None:
            key.append(value)
        elif not _has_storages(value):
            return record_whole(trace, func, kind, args, kwargs)
        else:
            _scan(trace, value, position, kind, key, reads, step)
    for name, value in kwargs.items():
        if not _has_storages(value):
            return record_whole(trace, func, kind, args, kwargs)
        key.append(name)
        _scan(trace, value, name, kind, key, reads, step)
    signature = _signature(trace, key, func, kind, args, kwargs)
    written = _before_writes(trace, kind, args, kwargs) if kind.writes else ()
    if kind.random:
        _save_random_state(trace, step, kind, args, kwargs)
    if signature.new:
        result = run_and_measure(signature, func, args, kwargs)
    else:
        result = func(*args, **kwargs) if kwargs else func(*args)
    if isinstance(result, Tensor) and not has_storage(result):
        trace.random.pop(step, None)
        return hold_results(trace, result, [tensor for _, tensor in written])
    # Asked before anything is noted: a policy is a user's function, and may fail.
    kept = trace.keep is not None and trace.keep(func)
    if kind.uninitialised and trace.verify:
        clear(result, trace.nbytes[written[0][0].slot] if written else 0)
    first = len(trace.producer)
    _make(trace, signature, kind, result, step)
    writes = _after_writes(trace, written, step) if written else ()
    if signature.new or trace.verify or kept:
        _look_closer(trace, signature, reads, first, result, written, kept=kept)
    trace.latest = signature
    if len(trace.producer) > first:
        trace.steps.append(_new_step(Step, (signature, tuple(reads), first, writes)))
    elif step in trace.random:
        nbytes = trace.random.pop(step)[1].nbytes
        trace.counter.live -= nbytes
        trace.kept_bytes -= nbytes
    return result


def _read(
    trace: Trace, value: Tensor, position: int | str, kind: OperatorTraits,
    key: list[Any], reads: list[int], step: int,
) -> None:  # fmt: skip
    storage = value.untyped_storage()
    buffer = trace.buffer_on(storage)
    if buffer is None:
        buffer = trace.adopt(value, storage)
    elif buffer.uninitialised and (
        position not in kind.writes or trace.noted(buffer.slot).exposure is not None
    ):
        trace.look_again(buffer, value)
    elif writes_of(value) > buffer.version + kind.counted:
        trace.written_unseen(buffer, value)
    slot = buffer.slot
    if -1 < trace.producer[slot] < trace.section and not buffer.uninitialised:
        slot = trace.carry_over(buffer, value)
    reads.append(slot)
    key.append(trace.geometries.of(value))
    key.append(value.requires_grad)
    trace.last_read[slot] = step
    if -1 < trace.producer[slot] < trace.opened.position:
        trace.needed_by_snapshot(slot, storage)


def _has_storages(value: Any) -> bool:
    return all(map(has_storage, nested_tensors(value)))


def _scan(
    trace: Trace, value: Any, position: int | str, kind: OperatorTraits,
    key: list[Any], reads: list[int], step: int,
) -> None:  # fmt: skip
    if isinstance(value, Tensor):
        _read(trace, value, position, kind, key, reads, step)
    elif value.__class__ is list or value.__class__ is tuple:
        key.append(("[", len(value)))
        for item in value:
            _scan(trace, item, position, kind, key, reads, step)
    else:
        key.append(constant_key(value))


def _save_random_state(
    trace: Trace, step: int, kind: OperatorTraits, args: Any, kwargs: dict[str, Any]
) -> None:
    if kind.chance is not None and kind.chance < len(args):
        if args[kind.chance] == 0.0:
            return
    note_random_state(trace, step, generator_for(args, kwargs))


def note_random_state(trace: Trace, step: int, generator: torch.Generator) -> None:
    """A step is about to draw from a generator."""
    state = generator.get_state()
    trace.random[step] = (generator, state)
    trace.counter.live += state.nbytes
    trace.kept_bytes += state.nbytes


def _before_writes(
    trace: Trace, kind: OperatorTraits, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[tuple[Buffer, Tensor]]:
    found: list[tuple[Buffer, Tensor]] = []
    for tensor in written_tensors(kind, args, kwargs):
        buffer = getattr(tensor.untyped_storage(), TAG)
        trace.before_write(buffer, tensor)
        found.append((buffer, tensor))
    return found


def _after_writes(
    trace: Trace, written: Sequence[tuple[Buffer, Tensor]], step: int
) -> tuple[tuple[int, int], ...]:
    writes: list[tuple[int, int]] = []
    for buffer, tensor in written:
        # Counted when the operator is left, and once more by `mark_dirty` of a custom
        # function, inside of which gradients are off.
        _count_writes(buffer, tensor, 1 if torch.is_grad_enabled() else 2)
        old, root = buffer.slot, trace.roots[buffer.slot]
        buffer.uninitialised = False
        nbytes = tensor.untyped_storage().nbytes()
        if nbytes != trace.nbytes[old]:  # `resize_`, or an `out=` that was too small
            root = trace.geometries.of(tensor)
            _resized(trace, buffer, nbytes)
        buffer.slot = trace.new_slot(step, nbytes, root)
        writes.append((old, buffer.slot))
        if old in trace.notes or trace.shared:
            trace.after_write(buffer, old, tensor)
    return tuple(writes)


def note_reshaped(trace: Trace, tensor: Tensor) -> None:
    """A tensor was given another geometry or memory: PyTorch counts that as a write."""
    buffer = has_storage(tensor) and trace.buffer_on(tensor.untyped_storage())
    if buffer:
        _count_writes(buffer, tensor, 1)


def _count_writes(buffer: Buffer, tensor: Tensor, more: int) -> None:
    """Account for writes that PyTorch is about to count."""
    buffer.version = max(buffer.version, writes_of(tensor) + more)


def _resized(trace: Trace, buffer: Buffer, nbytes: int) -> None:
    if buffer.nbytes:
        trace.counter.live += nbytes - buffer.nbytes
    buffer.nbytes = nbytes


def _signature(
    trace: Trace, key: list[Any], func: Any, kind: OperatorTraits,
    args: Any, kwargs: dict[str, Any],
) -> Signature:  # fmt: skip
    try:
        found = trace.signatures.get(frozen := tuple(key))
    except TypeError:  # an argument without a hash: this operator stands alone
        found, frozen = None, None
    if found is None:
        of = trace.geometries.of
        found = Signature(func, kind, args, kwargs, trace.opaque, of)
        if frozen is not None:
            trace.signatures[frozen] = found
    return found


def _look_closer(
    trace: Trace, signature: Signature, reads: list[int], first: int,
    result: Any, written: Sequence[tuple[Buffer, Tensor]], *, kept: bool,
) -> None:  # fmt: skip
    """The slow path: a signature's first call, what is kept, or any under `verify`."""
    if signature.new:
        _leave_room(trace, signature, reads, first)
        if not trace.warned:
            trace.warned = warn_of_compiled_code()
    outputs = result if isinstance(result, tuple | list) else (result,)
    results = *outputs, *(tensor for _, tensor in written)
    if kept:
        _keep_results(trace, results, first)
    if not trace.verify or signature.kind.uninitialised:
        return
    partly = PARTLY_WRITTEN.get(signature.func._schema.name, ())
    for index, tensor in enumerate(results):
        if not isinstance(tensor, Tensor) or index in partly:
            continue
        if tensor._is_zerotensor() or tensor.is_meta:
            continue  # it has no memory
        if not (signature.kind.scratch and tensor.dtype is torch.uint8):
            storage = tensor.untyped_storage()
            slot = getattr(storage, TAG).slot
            if slot >= first and tensor.nbytes != storage.nbytes():
                # A kernel that gives a part of what it made.
                trace.note(slot).gapped = True
            trace.note(slot).checksum = fingerprint_of(trace, slot, storage)


def _keep_results(trace: Trace, results: Sequence[Any], first: int) -> None:
    """Hold what an operator made or wrote until nothing asks for the run any more."""
    storages = [t.untyped_storage() for t in results if isinstance(t, Tensor)]
    made = {getattr(storage, TAG).slot: storage for storage in storages}
    for slot, storage in made.items():
        if slot >= first:
            trace.pin_slot(slot, storage)


def _leave_room(
    trace: Trace, signature: Signature, reads: list[int], first: int
) -> None:
    """Keep room for the cotangents of what an operator reads and makes."""
    signature.new = False
    made = range(first, len(trace.producer))
    if signature.kind.scratch:
        workspace = (s for s in made if trace.roots[s].dtype is torch.uint8)
        signature.scratch_bytes = sum(trace.nbytes[slot] for slot in workspace)
    room = cotangent_bytes(trace, len(trace.steps), signature, reads, made)
    if room > trace.largest:
        trace.largest = room
        trace.limit = trace.memory - room


def _make(
    trace: Trace, signature: Signature, kind: OperatorTraits, result: Any, step: int
) -> None:
    """Give a slot to each new storage of a result."""
    if isinstance(result, Tensor):
        if _is_new(trace, result, signature, kind, step):
            signature.outputs, signature.single = (0,), True
    elif result.__class__ in (tuple, list):
        outputs = tuple(
            index
            for index, tensor in enumerate(result)
            if isinstance(tensor, Tensor)
            and _is_new(trace, tensor, signature, kind, step)
        )
        # Which results are new storages follows from the signature.
        assert signature.outputs in ((), outputs)
        signature.outputs = outputs


def _is_new(
    trace: Trace, tensor: Tensor, signature: Signature, kind: OperatorTraits, step: int
) -> bool:
    storage = _storage_of(tensor, signature)
    buffer = getattr(storage, TAG, None)
    if (buffer is not None and buffer.owner is trace.owner) or (
        tensor.is_meta and not trace.without_values
    ):
        return False
    nbytes, known = storage.nbytes(), signature.root
    if known is None or nbytes != signature.nbytes or kind.varying:
        known = trace.geometries.of(tensor)
        if signature.single:  # the only result: the same at each call
            signature.root, signature.nbytes = known, nbytes
    slot = trace.new_slot(step, nbytes, known)
    buffer = Buffer(trace.owner, slot, nbytes, trace.counter)
    buffer.uninitialised, buffer.version = kind.uninitialised, writes_of(tensor)
    setattr(storage, TAG, buffer)
    return True


def _storage_of(tensor: Tensor, signature: Signature) -> Storage:
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        raise UnsupportedError(
            f"`{signature.func}` made a tensor of layout `{tensor.layout}`, which has "
            "no storage that could be recomputed. Call it outside `recompute`."
        ) from None
