"""What FSDP2 holds in a process during a step, which a budget has to leave room for.

For the forward of a unit: the buffer that it is gathered into, which stays until the
next unit's is there, and its whole parameters. For the backward: these, the buffer of
the unit that is fetched ahead, the unit's whole gradients, and the buffers of the ones
that are reduced. When units come in the forward is seen as it happens; the backward
goes through the same places in reverse, so what it will hold is known at the end of the
forward. Sizes are read off FSDP's own groups of parameters.
"""

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from retape.engines.eager.record._sharded_units import ShardedUnit

_FILE = "_fsdp_param_group.py"
_DEPTH = 16  # frames from the label of a region to the method that begins it


class _Place(NamedTuple):
    """Where a unit begins or ends in the forward; `late` if no input has a gradient."""

    unit: ShardedUnit
    begins: bool
    late: bool


class ShardedMemory:
    """The bytes that FSDP2 takes in the step that is recorded."""

    def __init__(self) -> None:
        self._units: dict[int, ShardedUnit] = {}
        self._places: list[_Place] = []
        self._most = 0

    def begin(self) -> int:
        """Note that a unit begins; the bytes that the step so far takes at most."""
        frame = _method("pre_forward")
        if frame is None:
            return self._most
        group = frame["self"]
        unit = self._unit(group)
        if not self._places and unit.is_root:
            self._most = self._guess(unit)
        if torch.is_grad_enabled():
            given = tree_leaves((frame.get("args"), frame.get("kwargs")))
            late = not any(isinstance(x, Tensor) and x.requires_grad for x in given)
            self._places.append(_Place(unit, True, late))
        now = self._now()
        if not unit.gathered_bytes():
            now += 0 if unit.is_on_its_way() else unit.buffer
            self._most = max(self._most, now + unit.copies)
            now += unit.whole - unit.last_buffer_bytes()  # which is freed first
        self._most = max(self._most, now + self._ahead(unit))
        return self._most

    def end(self) -> int:
        """Note that a unit ends; the bytes that the step so far takes at most."""
        frame = _method("post_forward")
        if frame is not None and torch.is_grad_enabled():
            self._places.append(_Place(self._unit(frame["self"]), False, False))
        return self._most

    def of_backward(self) -> int:
        """The most bytes that the forward took, or that the backward will take."""
        opened = list[ShardedUnit]()  # the recording may end inside of units
        for place in self._places:
            if place.begins:
                opened.append(place.unit)
            elif place.unit in opened:
                opened.remove(place.unit)
        ends = [_Place(unit, False, False) for unit in reversed(opened)]
        return max(self._most, _backward_bytes([*self._places, *ends], self._now()))

    def _unit(self, group: Any) -> ShardedUnit:
        if id(group) not in self._units:
            self._units[id(group)] = ShardedUnit(group)
        return self._units[id(group)]

    def _guess(self, root: ShardedUnit) -> int:
        """What a step takes that runs each unit once, in the order of the modules."""
        units = [self._unit(group) for group in root.all_groups()]
        places, inside = [_Place(root, True, True)], list[ShardedUnit]()
        for unit in (unit for unit in units if unit is not root):
            while inside and not unit.is_inside(inside[-1]):
                places.append(_Place(inside.pop(), False, False))
            places.append(_Place(unit, True, False))
            inside.append(unit)
        places += [_Place(unit, False, False) for unit in (*reversed(inside), root)]
        kept = sum(unit.whole for unit in units if unit is root or unit.stays)
        return max(kept, _backward_bytes(places, kept))

    def _now(self) -> int:
        """The bytes that are held for parameters at this moment."""
        units = self._units.values()
        buffers = {
            id(each): each.untyped_storage().nbytes()
            for unit in units
            for each in unit.buffers()
        }
        held = sum(unit.gathered_bytes() + unit.resharded_bytes() for unit in units)
        return held + sum(buffers.values())

    def _ahead(self, unit: ShardedUnit) -> int:
        """The buffers of units that are fetched while this one runs."""
        ahead = [self._unit(group) for group in unit.fetched_ahead()]
        fetched = [
            each
            for each in ahead
            if not each.gathered_bytes() and not each.is_on_its_way()
        ]
        copies = max((each.copies for each in fetched), default=0)
        return sum(each.buffer for each in fetched) + copies


def _method(name: str) -> dict[str, Any] | None:
    """The local variables of the method of FSDP that the caller is called from."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_DEPTH):
        if frame is None:
            return None
        code = frame.f_code
        if code.co_name == name and code.co_filename.endswith(_FILE):
            return frame.f_locals
        frame = frame.f_back
    return None


def _backward_bytes(places: list[_Place], now: int) -> int:
    """The most that FSDP holds in the backward of a forward through some places.

    Args:
        places: In the order of the forward.
        now: What it holds for parameters at the end of the forward.
    """
    gathered = {p.unit for p in places if p.unit.gathered_bytes() or p.unit.stays}
    backward = _Backward(now, gathered)
    ends = [place.unit for place in places if not place.begins]
    late: list[ShardedUnit] = []
    for place in reversed(places):
        if not place.begins:
            ends.pop()
            backward.gather(place.unit, ends)
        elif place.late:
            late.append(place.unit)
        else:
            backward.reduce(place.unit)
    for unit in late:
        backward.reduce(unit)
    return backward.peak


class _Backward:
    """What is held at a moment of a backward.

    Attributes:
        peak: The most so far.
    """

    def __init__(self, parameters: int, gathered: set[ShardedUnit]) -> None:
        self.peak = self._live = parameters
        self._gathered = gathered
        self._fetched: set[ShardedUnit] = set()
        self._gradients: set[ShardedUnit] = set()
        self._reduced: deque[int] = deque()

    def _take(self, nbytes: int, beside: int = 0) -> None:
        self._live += nbytes
        self.peak = max(self.peak, self._live + beside)

    def gather(self, unit: ShardedUnit, before: list[ShardedUnit]) -> None:
        """Gather a unit, fetch the one before it, and make its gradients."""
        if unit not in self._gathered:
            if unit not in self._fetched:
                self._fetch(unit)
            self._take(unit.whole)
            self._fetched.discard(unit)
            self._gathered.add(unit)
            self._live -= unit.buffer
        self._fetch_all(unit.fetched_ahead_in_backward(before))
        if unit not in self._gradients:
            self._gradients.add(unit)
            self._take(unit.gradients)

    def _fetch_all(self, units: Iterable[ShardedUnit]) -> None:
        for unit in units:
            if unit not in self._gathered and unit not in self._fetched:
                self._fetch(unit)

    def _fetch(self, unit: ShardedUnit) -> None:
        self._fetched.add(unit)
        self._take(unit.buffer, unit.copies)

    def reduce(self, unit: ShardedUnit) -> None:
        """Let a unit's parameters go, and sum its gradients over the processes."""
        if unit.frees_after_backward and unit in self._gathered:
            self._gathered.discard(unit)
            self._live -= unit.whole
        if not unit.reduces:
            return
        while len(self._reduced) >= unit.reduced_at_once:
            self._live -= self._reduced.popleft()
        if unit in self._gradients:
            self._take(unit.reduced)
            self._gradients.discard(unit)
            self._take(-unit.gradients, unit.reducing)
            self._reduced.append(unit.reduced)
