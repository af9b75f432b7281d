"""The record of a loop: calls of public functions on numbered tensors.

A slot here is a tensor that a call made or that the program brought along. Snapshots
hold tensors by their slot: those alive at a position and, as far as is known, read
after it. They are kept within a share of the budget by giving up every other one.
"""

import sys
from enum import Enum
from typing import Any, NamedTuple

import torch

from ._errors import BudgetError, MutationError, UnsupportedError

Tensor = torch.Tensor
_TAG = "_retape_call"
# Snapshots may take this share of a budget; a stage and its cotangents the rest.
_SHARE = 0.25
_FIRST_SPACING = 16
_FIRST_STAGE = 8
# What a call saves and its backward makes, over the largest of its results: eight times
# is what an LSTM cell takes.
_ONE_CALL = 8


class Kind(Enum):
    """What a call means for the record."""

    CALL = "note it"
    RANDOM = "note it with the state of the generator"
    GRAD_MODE = "it sets gradient mode"
    QUESTION = "it makes no tensor of the program"
    REQUIRES_GRAD = "it asks what is known from the record"
    REFUSED = "it cannot be run again"


class Slot(int):
    """Stands for a tensor among the arguments of a call."""


class Call(NamedTuple):
    """A function with its arguments, tensors as slots."""

    function: Any
    args: list[Any]
    kwargs: dict[str, Any] | None
    random: Tensor | None
    grad: bool


class Snapshot(NamedTuple):
    """Tensors from which the calls at and after a position can be run."""

    position: int
    values: dict[int, Tensor]


_RANDOM = (
    "drop", "rand", "bernoulli", "multinomial", "normal", "poisson", "rrelu", "gumbel",
    "attention", "lstm", "gru", "rnn", "sample", "fractional",
)  # fmt: skip
_QUESTIONS = frozenset(
    {
        "size", "dim", "stride", "item", "numel", "is_floating_point", "tolist",
        "is_complex", "element_size", "storage_offset", "is_contiguous", "__len__",
        "__bool__", "__float__", "__int__", "__index__", "__repr__", "__format__",
        "ndimension", "nelement", "get_device", "is_tensor", "equal", "allclose",
        "is_same_size", "result_type", "is_nonzero", "__contains__", "data_ptr",
        "shape", "dtype", "device", "ndim", "is_cuda", "layout", "is_sparse",
        "is_quantized", "is_meta", "is_mkldnn", "itemsize", "nbytes", "names",
        "is_mps", "is_xpu", "is_cpu", "is_nested", "__hash__", "is_inference",
    }
)  # fmt: skip
_REFUSED = frozenset(
    {
        "backward", "grad", "grad_fn", "is_leaf", "retain_grad", "register_hook",
        "register_post_accumulate_grad_hook", "retains_grad", "output_nr",
        "_backward_hooks",
        "__setitem__", "__set__", "__delete__", "empty", "empty_like", "new_empty",
        "empty_strided", "new_empty_strided", "empty_permuted", "batch_norm",
        "instance_norm", "_version", "untyped_storage", "numpy", "__array__",
        "__dlpack__", "checkpoint", "__deepcopy__",
    }
)  # fmt: skip
_NO_WRITES = ("__invert__", "__index__", "__int__")
_table: dict[Any, Kind] = {torch._C._set_grad_enabled: Kind.GRAD_MODE}


def kind_of(function: Any) -> Kind:
    """The kind of a public function or method of PyTorch."""
    kind = _table.get(function)
    if kind is None:
        kind = _table[function] = _classify(function)
    return kind


def _classify(function: Any) -> Kind:
    name = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(function.__self__, "__name__", "")
    if name == "requires_grad":
        return Kind.REQUIRES_GRAD
    inplace = name.endswith("_") and not name.endswith("__")
    arithmetic = name.startswith("__i") and name not in _NO_WRITES
    if inplace or arithmetic or name in _REFUSED:
        return Kind.REFUSED
    if name in _QUESTIONS:
        return Kind.QUESTION
    if name.endswith("_cell"):  # one step of a recurrent layer draws nothing
        return Kind.CALL
    return Kind.RANDOM if any(part in name for part in _RANDOM) else Kind.CALL


class Calls:
    """Calls in order, what the program brought along, and snapshots."""

    def __init__(self, memory: int | None, snapshots: int | None, stage: int) -> None:
        self.memory, self.most, self.stage = memory, snapshots, stage
        self.calls: list[Call] = []
        self.reads: list[tuple[int, ...]] = []
        self.makes: list[tuple[int, bool]] = []
        self.producer: list[int] = []
        self.last_read: list[int] = []
        self.nbytes: list[int] = []
        self.needs: list[bool] = []
        self.versions: list[int] = []
        self.foreign: dict[int, Tensor] = {}
        self.snapshots = [Snapshot(0, {})]
        self._foreign_slots: dict[int, int] = {}
        self._pending: dict[int, Tensor] = {}
        self._spacing = _FIRST_SPACING if snapshots is None else stage
        self._next = self._spacing
        self._random = torch.default_generator.get_state()
        self._draws = False
        self.state_bytes = 0
        self.first_read: dict[int, int] = {}

    # -- what the recorder does -------------------------------------------------

    def encode(self, value: Any, reads: list[int]) -> Any:
        """An argument with a slot for each tensor; their slots are added to `reads`."""
        if isinstance(value, Tensor):
            slot = self.slot_of(value)
            reads.append(slot)
            self.last_read[slot] = len(self.calls)
            return Slot(slot)
        kind = value.__class__
        if kind is list or kind is tuple:
            return kind(self.encode(item, reads) for item in value)
        if isinstance(value, dict | set | torch.Generator):
            raise UnsupportedError(
                f"an argument of type `{kind.__name__}` cannot be noted by "
                "`recompute(mode='loop')`. Leave `mode` out."
            )
        return value

    def slot_of(self, tensor: Tensor) -> int:
        """The slot of a tensor, which is foreign if no call made it."""
        tag = getattr(tensor, _TAG, None)
        if tag is not None and tag[0] is self:
            slot: int = tag[1]
        else:
            found = self._foreign_slots.get(id(tensor))
            slot = self._adopt(tensor) if found is None else found
        if tensor._version != self.versions[slot]:
            raise MutationError(_overwritten(tensor))
        return slot

    def differentiable(self, tensor: Tensor) -> bool:
        """Whether a tensor would require a gradient if there were a graph."""
        return self.needs[self.slot_of(tensor)]

    def random_state(self) -> Tensor:
        """The state of the default generator before a random call."""
        return torch.default_generator.get_state()

    def drawn(self, before: Tensor) -> Tensor | None:
        """The state before a call if the call has drawn, else `None`."""
        if torch.equal(before, torch.default_generator.get_state()):
            return None
        self._draws = True
        self.state_bytes += before.nbytes
        return before

    def add(self, call: Call, reads: list[int], results: Any, single: bool) -> None:
        """Note a call that has run."""
        if single and self._is_known(results[0]):
            return
        if call.kwargs is not None and "out" in call.kwargs:
            raise UnsupportedError(
                "`out=` writes in place, which `recompute(mode='loop')` cannot run "
                "again. Leave `mode` out."
            )
        index = len(self.calls)
        needs = call.grad and any(map(self.needs.__getitem__, reads))
        self.makes.append((len(self.producer), single))
        for tensor in results:
            floating = needs and (tensor.is_floating_point() or tensor.is_complex())
            slot = self._new(index, tensor, floating)
            setattr(tensor, _TAG, (self, slot))
            self._pending[slot] = tensor
        self.calls.append(call)
        self.reads.append(tuple(reads))
        if index + 1 >= self._next:
            self._mark()

    def _is_known(self, tensor: Tensor) -> bool:
        tag = getattr(tensor, _TAG, None)
        return (tag is not None and tag[0] is self) or id(tensor) in self._foreign_slots

    def _adopt(self, tensor: Tensor) -> int:
        if (
            type(tensor) not in (Tensor, torch.nn.Parameter)
            or not tensor.is_leaf
            and (tensor.is_inference())
        ):
            raise UnsupportedError(
                f"a tensor of type `{type(tensor).__name__}` was read under "
                "`recompute(mode='loop')`. Leave `mode` out."
            )
        slot = self._new(-1, tensor, tensor.requires_grad)
        if tensor.requires_grad:
            self.first_read[slot] = len(self.calls)
        self.foreign[slot] = tensor
        self._foreign_slots[id(tensor)] = slot
        return slot

    def _new(self, producer: int, tensor: Tensor, needs: bool) -> int:
        slot = len(self.producer)
        self.producer.append(producer)
        self.last_read.append(-1)
        self.nbytes.append(tensor.nbytes)
        self.needs.append(needs)
        self.versions.append(0 if tensor.is_inference() else tensor._version)
        return slot

    # -- snapshots --------------------------------------------------------------

    def _mark(self) -> None:
        """Put a snapshot here: of the values known, those that somebody still holds."""
        before = self.snapshots[-1]
        values = {
            slot: tensor
            for slot, tensor in (*before.values.items(), *self._pending.items())
            if sys.getrefcount(tensor) > _OURS
        }
        self._prune(before)
        self._pending.clear()
        self.snapshots.append(Snapshot(len(self.calls), values))
        if self._too_many():
            self._thin()
        self._next = len(self.calls) + self._spacing

    def _prune(self, snapshot: Snapshot) -> None:
        """Forget what nobody has read since a snapshot."""
        for slot in list(snapshot.values):
            if self.last_read[slot] < snapshot.position:
                del snapshot.values[slot]

    def _too_many(self) -> bool:
        if self.most is not None:
            return len(self.snapshots) > self.most
        assert self.memory is not None
        most = _SHARE * (self.memory - self.sum_bytes())
        return len(self.snapshots) > 3 and self.snapshot_bytes() > most

    def snapshot_bytes(self) -> int:
        """Bytes that snapshots and states of generators hold."""
        slots = {slot for snapshot in self.snapshots for slot in snapshot.values}
        return self.state_bytes + sum(self.nbytes[slot] for slot in slots)

    def _thin(self) -> None:
        old = self.snapshots
        kept = old[:1]
        for k, snapshot in enumerate(old[1:], 1):
            if k % 2 == 0 or k == len(old) - 1:
                kept.append(snapshot)
                continue
            for slot, tensor in snapshot.values.items():
                if self.producer[slot] < kept[-1].position:
                    kept[-1].values[slot] = tensor
        self.snapshots = kept
        self._spacing *= 2

    def finish(self) -> dict[int, Tensor]:
        """The recording is over: results that are still held and need a gradient."""
        self._check_end()
        last = self.snapshots[-1]
        known = {**last.values, **self._pending}
        self._prune(last)
        self._pending.clear()
        last = None
        leaving = {
            slot: tensor
            for slot, tensor in known.items()
            if self.needs[slot] and sys.getrefcount(tensor) > _OURS
        }
        for snapshot in self.snapshots:
            for slot in snapshot.values:
                # An alias without graph: else the graph would hold itself.
                snapshot.values[slot] = snapshot.values[slot].detach()
        return leaving

    def sum_bytes(self) -> int:
        """Bytes of the cotangents of what the program brought along.

        Where it is read by several calls there are three: a stage's sum, the one before
        that it begins with, and a term.
        """
        return sum(
            self.nbytes[slot] * (3 if first < self.last_read[slot] else 1)
            for slot, first in self.first_read.items()
        )

    def check_budget(self) -> None:
        """Refuse a budget in which not even one call can be reversed.

        Raises:
            BudgetError: Its message names the least.
        """
        made = (self.nbytes[s] for s, call in enumerate(self.producer) if call >= 0)
        least = self.sum_bytes() + self.state_bytes + _ONE_CALL * max(made, default=0)
        if self.memory is not None and self.memory < least:
            raise BudgetError(
                f"`memory={self.memory}` bytes are too few for this run of "
                f"`{len(self.calls)}` calls under `recompute(mode='loop')`; it needs "
                f"at least `{least}`. Give that much."
            )

    def first_stage(self, room: float) -> int:
        """Calls to go back through before any was measured."""
        made = [self.nbytes[s] for s, call in enumerate(self.producer) if call >= 0]
        mean = sum(made) / max(1, len(self.calls))
        return max(1, min(_FIRST_STAGE, int(room / max(1.0, _ONE_CALL * mean))))

    def _check_end(self) -> None:
        for slot, tensor in self.foreign.items():
            if tensor._version != self.versions[slot]:
                raise MutationError(_overwritten(tensor))
        state = torch.default_generator.get_state()
        if not self._draws and not torch.equal(state, self._random):
            raise UnsupportedError(
                "random numbers were drawn by a function that "
                "`recompute(mode='loop')` does not know to be random. Leave `mode` out."
            )


# References to a tensor that nobody but the record holds, at the place of the count:
# the table that it is in, the loop's variable, the pair, and the argument.
_OURS = 4


def _overwritten(tensor: Tensor) -> str:
    return (
        f"A tensor of shape `{tuple(tensor.shape)}`, which the program under "
        "`recompute(mode='loop')` read, was overwritten in place, so the calls that "
        "read it cannot be run again. Leave `mode` out, or write into a copy."
    )
