"""The record of a loop: calls of public functions on numbered tensors.

A slot is one version of one storage, as in a trace. Here no call may write in place, so
it is simply a tensor, one that a call made or that the program brought along. Snapshots
hold tensors by their slot: those alive at a position and, as far as is known, read
after it. Which are held is said by the schedule of a run whose end is not known; where
bytes are counted, it has no more slots once a share of them is taken. What is made
between two snapshots nobody holds but the program.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from sys import maxsize
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.graph import get_gradient_edge

from retape._errors import BudgetError, MutationError, UnsupportedError
from retape.engines.eager._function_levels import inside_of_transform
from retape.engines.eager._limits import BACKWARD_NUMBERS
from retape.engines.eager._wrapper_tensors import writes_of
from retape.engines.eager.loop._function_traits import has_gradient
from retape.engines.eager.trace._random_state import Drawn, Draws, present_generators
from retape.schedule import OnlineBinomial
from retape.schedule._in_use import running_sums

_TAG = "_retape_call"
# Its stubs leave out how many refer to a tensor: Python counts as one.
_uses: Callable[[Tensor], int] = vars(torch._C.TensorBase)["_use_count"]
# Snapshots may take this share of a budget; a stage and its cotangents the rest. With a
# quarter, 400 LSTM cells ran 1.76 forwards again in 526 kB, not 1.51, and 1.51 in
# 591 kB, not 1.21 (2026-11-27).
_SHARE = 0.5
# Where bytes are counted: calls between two snapshots at first, and the most of them.
_SPACING, _MOST = 16, 1024
# What a call saves and its backward makes, with what waits meanwhile, over the largest
# of its results: an LSTM cell takes nearly as much.
ONE_CALL = 12
# So many snapshots are left, however little room there is.
_FEWEST = 3


class Slot(int):
    """Stands for a tensor among the arguments of a call."""

    __slots__ = ()


class Call(NamedTuple):
    """A function with its arguments, tensors as slots."""

    function: Any
    args: list[Any]
    kwargs: dict[str, Any] | None
    random: Drawn | None
    grad: bool


class LoopSnapshot(NamedTuple):
    """Tensors from which the calls at and after a position can be run."""

    position: int
    values: dict[int, Tensor]


class Calls:
    """Calls in order, what the program brought along, and snapshots.

    `grad` is gradient mode as the program has set it.
    """

    def __init__(self, memory: int | None, snapshots: int | None, stage: int) -> None:
        self.memory, self.most, self.stage = memory, snapshots, stage
        self.grad = torch.is_grad_enabled()
        self.calls: list[Call] = []
        self.reads: list[tuple[int, ...]] = []
        self.makes: list[tuple[int, bool]] = []
        self.producer: list[int] = []
        self.last_read: list[int] = []
        self.nbytes: list[int] = []
        self.needs: list[bool] = []
        self.versions: list[int] = []
        self.foreign: dict[int, Tensor] = {}
        self.snapshots = [LoopSnapshot(0, {})]
        self._owner = object()  # in the tags: they make no cycle
        self._foreign_slots: dict[int, Slot] = {}
        self._made: dict[int, ref[Tensor]] = {}  # since the last snapshot
        self._used: dict[int, ref[Tensor]] = {}  # not in Python alone
        if snapshots is None:
            self._online = OnlineBinomial(_MOST, _SPACING, "doubling")
        else:
            self._online = OnlineBinomial(snapshots, stage)
        self._placed, _ = self._online.begin().place(0)
        self._due = self._online.stage  # calls, when a snapshot is due
        self._random = [(each, each.get_state()) for each in present_generators()]
        self._draws = False
        self._at_most = 0  # bytes that snapshots hold: a bound
        # Of generators, and read again at the end to be compared.
        states = 2 * sum(state.nbytes for _, state in self._random)
        self.state_bytes = self._most_states = states + BACKWARD_NUMBERS
        self.first_read: dict[int, int] = {}

    # -- what the recorder does -------------------------------------------------

    def encode(self, value: Any, reads: list[int]) -> Any:
        """An argument with a slot for each tensor; their slots are added to `reads`."""
        if isinstance(value, Tensor):
            slot = self.slot_of(value)
            reads.append(slot)
            self.last_read[slot] = len(self.calls)
            return slot
        kind = value.__class__
        if kind is list or kind is tuple:
            return kind(self.encode(item, reads) for item in value)
        if isinstance(value, dict | set | torch.Generator):
            raise UnsupportedError(
                f"an argument of type `{kind.__name__}` cannot be noted by "
                "`recompute(mode='loop')`. Leave `mode` out."
            )
        return value

    def slot_of(self, tensor: Tensor) -> Slot:
        """The slot of a tensor, which is foreign if no call made it."""
        known = self._known(tensor)
        slot = self._adopt(tensor) if known is None else known
        if writes_of(tensor) != self.versions[slot]:
            raise overwritten(tensor)
        return slot

    def _known(self, tensor: Tensor) -> Slot | None:
        tag = getattr(tensor, _TAG, None)
        if tag is not None and tag[0] is self._owner:
            return tag[1]
        return self._foreign_slots.get(id(tensor))

    def differentiable(self, tensor: Tensor) -> bool:
        """Tell whether a tensor would require a gradient if there were a graph."""
        return self.needs[self.slot_of(tensor)]

    def drawn(self, draws: Draws) -> Drawn | None:
        """The states before a call if the call has drawn, else `None`."""
        drawn = draws.drawn()
        nbytes = sum(state.nbytes for _, state in drawn)
        self._draws |= bool(drawn)
        self.state_bytes += nbytes
        self._at_most += nbytes
        return drawn or None

    def add(self, call: Call, reads: list[int], results: Any, single: bool) -> None:
        """Note a call that has run."""
        if single and self._known(results[0]) is not None:
            return
        if call.kwargs is not None and call.kwargs.get("out") is not None:
            raise UnsupportedError(
                "`out=` writes in place, which `recompute(mode='loop')` cannot run "
                "again. Leave `mode` out."
            )
        index = len(self.calls)
        needs = call.grad and any(map(self.needs.__getitem__, reads))
        needs = needs and has_gradient(call.function)
        self.makes.append((len(self.producer), single))
        for tensor in results:
            floating = needs and (tensor.is_floating_point() or tensor.is_complex())
            slot = self._new(index, tensor, floating)
            if self._known(tensor) is not None:  # given back as it was
                continue
            setattr(tensor, _TAG, (self._owner, slot))
            self._made[slot] = ref(tensor)
            if floating:  # what takes it and is not noted makes a graph: see below
                tensor.requires_grad = True
        self.calls.append(call)
        self.reads.append(tuple(reads))
        if index + 1 >= self._due:
            self._mark()

    def _adopt(self, tensor: Tensor) -> Slot:
        strange = type(tensor) not in (Tensor, torch.nn.Parameter)
        strange |= inside_of_transform()
        if strange or not tensor.is_leaf and tensor.is_inference():
            raise UnsupportedError(
                f"a tensor of type `{type(tensor).__name__}`, or inside of a transform "
                "of `torch.func`, was read under `recompute(mode='loop')`. Leave "
                "`mode` out."
            )
        if unpack_dual(tensor).tangent is not None:
            raise UnsupportedError(
                "a tensor of forward mode (`make_dual`) was read under "
                "`recompute(mode='loop')`: in the backward its level is gone. Leave "
                "`mode` out."
            )
        slot = self._new(-1, tensor, tensor.requires_grad)
        if tensor.requires_grad:
            self.first_read[slot] = len(self.calls)
        self.foreign[slot] = tensor
        self._foreign_slots[id(tensor)] = slot
        return slot

    def _new(self, producer: int, tensor: Tensor, needs: bool) -> Slot:
        if tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"a tensor of layout `{tensor.layout}` was read or made under "
                "`recompute(mode='loop')`, which counts the bytes of strided ones. "
                "Leave `mode` out."
            )
        slot = Slot(len(self.producer))
        self.producer.append(producer)
        self.last_read.append(-1)
        self.nbytes.append(tensor.nbytes)
        self.needs.append(needs)
        self.versions.append(writes_of(tensor))
        return slot

    # -- snapshots --------------------------------------------------------------

    def _held_by_program(self) -> dict[int, Tensor]:
        """What was made, as far as the program can still read it."""
        last = self.snapshots[-1].values
        made = ((slot, tensor()) for slot, tensor in self._made.items())
        there = {slot: tensor for slot, tensor in made if tensor is not None}
        for slot, tensor in (*last.items(), *there.items()):
            if _uses(tensor) > 1 and self.needs[slot]:
                self._used[slot] = ref(tensor)
        held = {s: t for s, t in last.items() if sys.getrefcount(t) > _OURS}
        held.update(there)
        self._made.clear()
        self._prune(self.snapshots[-1])
        return held

    def _refuse_graphs(self) -> None:
        """Refuse values of this record in a graph: no call that is noted makes one.

        TorchScript, other threads and C++ code do, and their results would be taken for
        constants. What a graph begins with lives as long, and not in Python alone.
        """
        for value in (used() for used in self._used.values()):
            if value is not None and _is_in_graph(value):
                raise UnsupportedError(
                    f"A tensor of shape `{tuple(value.shape)}` was read under "
                    "`recompute(mode='loop')` by code whose calls cannot be noted "
                    "(TorchScript, another thread, C++), so no gradient would go "
                    "through it. Leave `mode` out."
                )

    def _mark(self) -> None:
        """Put a snapshot here, and give up those that the schedule does not keep."""
        alpha, here = self._online.stage, len(self.calls)
        if self._too_many():
            self._placed = replace(self._placed, snapshots=len(self.snapshots))
        values = self._held_by_program()
        self.snapshots.append(LoopSnapshot(here, values))
        self._at_most += sum(map(self.nbytes.__getitem__, values))
        self._placed, _ = self._placed.place(here // alpha)
        kept = {stage * alpha for stage in self._placed.positions}
        for place in reversed(range(len(self.snapshots))):
            if self.snapshots[place].position not in kept:
                self.give_up(place)
        self._due = alpha * self._placed.next_change(here // alpha + 1, maxsize)

    def _prune(self, snapshot: LoopSnapshot) -> None:
        """Forget what nobody has read since a snapshot."""
        for slot in list(snapshot.values):
            if self.last_read[slot] < snapshot.position:
                del snapshot.values[slot]

    def _too_many(self) -> bool:
        """Whether snapshots take their share of a budget, and may be fewer."""
        if self.memory is None or len(self.snapshots) < _FEWEST:
            return False
        most = _SHARE * (self.memory - self.sum_bytes())
        if self._at_most <= most:
            return False
        self._at_most = self.snapshot_bytes()
        return self._at_most > most

    def snapshot_bytes(self) -> int:
        """Bytes that snapshots and states of generators hold."""
        slots = {slot for snapshot in self.snapshots for slot in snapshot.values}
        return self.state_bytes + sum(self.nbytes[slot] for slot in slots)

    def give_up(self, place: int) -> None:
        """Go on from the snapshot before another one."""
        into, given_up = self.snapshots[place - 1], self.snapshots.pop(place)
        is_last = into is self.snapshots[-1]
        for slot, tensor in given_up.values.items():
            if self.producer[slot] < into.position:
                into.values[slot] = tensor
            elif is_last:  # the next one may need it
                self._made[slot] = ref(tensor)

    def finish(self) -> dict[int, Tensor]:
        """The recording is over: results that are still held and need a gradient."""
        self._check_end()
        held = self._held_by_program()
        self._refuse_graphs()
        leaving = {slot: tensor for slot, tensor in held.items() if self.needs[slot]}
        for tensor in leaving.values():
            tensor.requires_grad = False  # as it was made; what leaves gets a node
        for snapshot in self.snapshots:
            for slot in snapshot.values:
                # An alias without graph: else the graph would hold itself.
                snapshot.values[slot] = snapshot.values[slot].detach()
        return leaving

    def leads_on(self, slot: int) -> bool:
        """Whether a value that needs a gradient was computed from another one."""
        return any(
            slot in reads and self.needs[first]
            for reads, (first, _) in zip(self.reads, self.makes, strict=True)
        )

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
            BudgetError: It names the least.
        """
        if self.memory is None:
            return
        widest = self.widest(0, len(self.calls))
        # In a small run the states that are compared at its end take most.
        least = self.sum_bytes() + self._most_states
        least += _FEWEST * widest + self.one_call()
        if self.memory < least:
            raise BudgetError(
                f"`memory={self.memory}` bytes are too few for this run of "
                f"`{len(self.calls)}` calls under `recompute(mode='loop')`; it needs "
                f"at least `{least}`. Give that much.",
                least=least,
            )

    def widest(self, first: int, stop: int) -> int:
        """The most bytes of a snapshot between some calls: what crosses a position."""
        last = {slot: k for k in range(first, stop) for slot in self.reads[k]}
        made = self.producer
        values = [
            (max(0, made[slot] + 1 - first), read + 1 - first, self.nbytes[slot])
            for slot, read in last.items()
            if made[slot] >= 0
        ]
        return max(running_sums(values, stop - first), default=0)

    def one_call(self) -> int:
        """Bytes that going back through any one call takes at most."""
        made = zip(self.nbytes, self.producer, strict=True)
        return ONE_CALL * max((n for n, call in made if call >= 0), default=0)

    def _check_end(self) -> None:
        for slot, tensor in self.foreign.items():
            if writes_of(tensor) != self.versions[slot]:
                raise overwritten(tensor)
        if not self._draws and any(
            not torch.equal(state, each.get_state()) for each, state in self._random
        ):
            raise UnsupportedError(
                "random numbers were drawn by a function that "
                "`recompute(mode='loop')` does not know to be random. Leave `mode` out."
            )
        # Nothing is compared any more. After a draw the backward puts one back.
        self._most_states = self.state_bytes
        copies = 1 if self._draws else 2
        self.state_bytes -= copies * sum(state.nbytes for _, state in self._random)
        self._random.clear()


# References to a tensor that nobody but the record holds, at the place of the count:
# the table that it is in, the loop's variable, the pair, and the argument.
_OURS = 4


def _is_in_graph(leaf: Tensor) -> bool:
    """Tell whether a leaf has the node that a graph begins with, which refers to it."""
    uses = _uses(leaf)
    edge = get_gradient_edge(leaf)  # it is made if there is none
    return edge is not None and _uses(leaf) == uses


def overwritten(tensor: Tensor) -> MutationError:
    """The error of a tensor that was overwritten."""
    return MutationError(
        f"A tensor of shape `{tuple(tensor.shape)}`, which the program under "
        "`recompute(mode='loop')` read, was overwritten in place, so the calls that "
        "read it cannot be run again. Leave `mode` out, or write into a copy."
    )
