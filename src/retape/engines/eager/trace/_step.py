"""Steps of a trace and what is constant about them, snapshots, and what saved what.

A loop of ten thousand turns runs the same few operators on the same geometries. What
does not change from turn to turn (operator, constants, geometries, gradient mode) is a
`Signature`, stored once; what does change is a tuple of slots: a `Step`.

Autograd saves operands before an operator runs, at its own step, and results after
it, at the next one. A formula that reads both (a recurrent layer, a normalisation)
would ask for values of two steps, and where these are in different stages each would be
computed again for the other: an LSTM of six layers ran 3.4 forwards again where its
plan said half of one. So what is saved beside operands is placed at the step that made
it.

A result that the next operator reads may have been saved as its operand instead: only
if it was saved more often than it is read, the first times were as a result. A kernel
with a workspace saves all of its results.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from retape.engines.eager._kernel_workspace import workspace_bytes
from retape.engines.eager.trace._backward_formulas import spare_tensors
from retape.engines.eager.trace._geometry import Geometry, view_through
from retape.engines.eager.trace._operator_traits import OperatorTraits

Place = tuple[int | str, int]


class Signature:
    """An operator with everything but its tensors, which is about to run.

    Args:
        func, kind, args, kwargs: The call.
        opaque: It runs inside a wrapper, which alone knows what gets a gradient.
        geometry_of: Tells the geometries of tensors.

    Attributes:
        func: The operator; `call` is the same, faster.
        kind: What the trace must know about it.
        grad: Gradient mode when it ran; some kernels read it.
        dtype: The default type then, of numbers made from none or from integers.
        outputs: Positions, in the result, of the tensors with a new storage.
        single: The result is one tensor; `root`, `nbytes`: its geometry and length.
        differentiable: For each tensor read, whether it may get a cotangent; another
            call is of this signature only if the same ones may.
        passive: No cotangent goes through it: it reads nothing that gets one, or gives
            no value. In a custom function, where gradient mode is off, who knows.
        sizes: Bytes of each tensor read, as it is seen.
        lean: Its formula makes nothing on the way but cotangents, or it is known in
            bytes what. `spare`: Tensors that it holds on the way, if it is not.
        copying: Its kernels work on copies of what it reads and makes.
        workspace: The bytes that its kernel takes for itself, beyond copies if it
            copies; `reverse_workspace`: what those of its backward take beyond that.
        scratch_bytes: Of its results, those of a workspace, once it has run.
        new: It has not run yet.
        native: The same for the accelerator, if it has met it.
        simple: Every tensor is a positional argument of its own.
    """

    __slots__ = ("__dict__", "native")

    def __init__(
        self,
        func: Any,
        kind: OperatorTraits,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        opaque: bool,
        geometry_of: Callable[[Tensor], Geometry],
    ) -> None:
        places: list[Place] = []
        geometries: list[Geometry] = []
        differentiable: list[bool] = []
        named = [*enumerate(args), *kwargs.items()]
        for where, value in named:
            for index, item in _tensors(value):
                places.append((where, index))
                geometries.append(geometry_of(item))
                differentiable.append(
                    item.requires_grad or (opaque and item.is_floating_point())
                )
        self.func, self.call = func, func._op
        self.kind, self.grad = kind, torch.is_grad_enabled()
        self.dtype = torch.get_default_dtype()
        self.args = [_without_tensors(value) for value in args]
        self.kwargs = {name: _without_tensors(v) for name, v in kwargs.items()}
        self.places, self.geometries = tuple(places), tuple(geometries)
        self.differentiable = tuple(differentiable)
        self.passive = kind.uninitialised or (self.grad and not any(differentiable))
        self.sizes = tuple(prod(g.size) * g.dtype.itemsize for g in geometries)
        found = workspace_bytes(func._schema.name, args)
        self.workspace, self.reverse_workspace, _ = found
        self.spare, self.copying = 0, kind.copying and not _on_cuda(args)
        self.lean = self.copying or kind.lean
        if not self.lean and any(differentiable):
            self.spare = spare_tensors(func, args, geometries, differentiable)
        self.scratch_bytes = 0
        self.new = True
        self.native: Any = None
        self.simple = not kwargs and all(
            where.__class__ is int and index < 0 for where, index in places
        )
        self.outputs: tuple[int, ...] = ()
        self.root: Geometry | None = None
        self.nbytes = -1
        self.single = False

    def take_measured(self, forward: int, reverse: int | None) -> None:
        """What its kernel took was measured, and its backward, if that could be tried.

        One that works in memory of its own holds no tensors on the way, and needs as
        much on the way back as far as anybody knows.
        """
        self.workspace, self.reverse_workspace = forward, reverse or 0
        if reverse is not None:
            self.spare, self.lean = 0, True
        elif forward:
            self.spare, self.reverse_workspace = 0, forward

    def run(self, roots: Sequence[tuple[Tensor, Geometry]]) -> tuple[Any, list[Tensor]]:
        """Run the operator on the tensors given by their roots.

        Returns:
            The result, and the tensors that the operator was given.
        """
        tensors = [
            root if seen is wanted else view_through(root, seen, wanted)
            for (root, seen), wanted in zip(roots, self.geometries, strict=True)
        ]
        args = self.args.copy()
        if self.simple:
            for (where, _), tensor in zip(self.places, tensors, strict=True):
                args[where] = tensor  # pyright: ignore[reportCallIssue, reportArgumentType]
            return self.call(*args), tensors
        kwargs = self.kwargs.copy()
        for (where, index), tensor in zip(self.places, tensors, strict=True):
            holder: Any = args if where.__class__ is int else kwargs
            if index < 0:
                holder[where] = tensor
            else:
                if holder[where].__class__ is tuple:
                    holder[where] = list(holder[where])
                holder[where][index] = tensor
        return self.call(*args, **kwargs), tensors


def _on_cuda(args: Sequence[Any]) -> bool:
    return any(isinstance(each, Tensor) and each.is_cuda for each in args)


def _tensors(value: Any) -> list[tuple[int, Tensor]]:
    if isinstance(value, Tensor):
        return [(-1, value)]
    if value.__class__ is list or value.__class__ is tuple:
        return [(k, item) for k, item in enumerate(value) if isinstance(item, Tensor)]
    return []


def _without_tensors(value: Any) -> Any:
    """The value with `None` for each tensor; lists as tuples, which nobody changes."""
    if isinstance(value, Tensor):
        return None
    if value.__class__ is list or value.__class__ is tuple:
        return tuple(None if isinstance(item, Tensor) else item for item in value)
    return value


def constant_key(value: Any) -> Any:
    """A key equal for two constants only if an operator cannot tell them apart.

    Python's equality is too kind: `1 == 1.0 == True` and `0.0 == -0.0`.

    Examples:
        >>> constant_key(1) == constant_key(1.0)
        False
    """
    kind = value.__class__
    if kind is float or kind is bool or kind is complex:
        return (kind, repr(value))
    return value


class Step(NamedTuple):
    """One operator: a signature, the slots read, the first slot made, overwrites."""

    signature: Signature
    reads: tuple[int, ...]
    first: int
    writes: tuple[tuple[int, int], ...]


class Snapshot:
    """Slots made before `position` and read after it, until the next snapshot.

    `saved` counts the bytes that autograd had saved by then, since the start; `tier` is
    where the snapshot goes if the run has a store.
    """

    __slots__ = ("position", "saved", "slots", "tier")

    def __init__(
        self, position: int, slots: set[int], saved: int, tier: str = "memory"
    ) -> None:
        self.position = position
        self.slots = slots
        self.saved = saved
        self.tier = tier


def made_by(step: Step) -> range:
    """The slots that a step makes: its new storages first, then its overwrites."""
    made = len(step.signature.outputs) + len(step.writes)
    return range(step.first, step.first + made)


def steps_making(
    wanted: Iterable[int],
    there: Container[int],
    producer: Sequence[int],
    reads: Callable[[int], Iterable[int]],
    floor: int = 0,
) -> set[int]:
    """The steps that have to run for some slots.

    Args:
        wanted: The slots.
        there: Those that nothing has to run for.
        producer: By slot, the step that makes it; -1 if none does.
        reads: Tells the slots that a step reads.
        floor: The first step that may run.

    Examples:
        A chain `y = f(g(x))` of which nothing is held needs both steps for `y`, and
        only `f` if the result of `g` is held.

        >>> steps_making([2], {}, [-1, 0, 1], lambda step: (step,))
        {0, 1}
        >>> steps_making([2], {1}, [-1, 0, 1], lambda step: (step,))
        {1}
    """
    found: set[int] = set()
    stack = [slot for slot in wanted if slot not in there]
    while stack:
        step = producer[stack.pop()]
        if step >= floor and step not in found:
            found.add(step)
            stack += [slot for slot in reads(step) if slot not in there]
    return found


def places_of(
    steps: Sequence[Step],
    producer: Sequence[int],
    handle_steps: Sequence[int],
    slots: Sequence[int],
) -> list[int]:
    """For each saved tensor, the step whose formula reads it; never decreasing.

    Args:
        steps, producer: Of the trace.
        handle_steps: For each saved tensor, how many steps there were then.
        slots: The slots that they stand for.
    """
    places = list(handle_steps)
    number, count = 0, len(places)
    while number < count:
        step = handle_steps[number]
        end = bisect_right(handle_steps, step, number)
        beside_operands = number and handle_steps[number - 1] == step - 1
        if beside_operands and producer[slots[number]] == step - 1:
            results = _results(steps, producer, step, slots[number:end])
            places[number : number + results] = [step - 1] * results
        number = end
    return places


def _results(
    steps: Sequence[Step], producer: Sequence[int], step: int, slots: Sequence[int]
) -> int:
    """How many of the tensors saved at a position were results of the step before."""
    scratch = steps[step - 1].signature.kind.scratch
    reads = steps[step].reads if step < len(steps) else ()
    for found, slot in enumerate(slots):
        if producer[slot] != step - 1:
            return found
        again = slot in slots[:found] if scratch else False
        if again or not scratch and slots[found:].count(slot) <= reads.count(slot):
            return found
    return len(slots)
