"""Segment lengths of nested loops for n steps that take the least bytes.

A nest with factors (a1, ..., ak) runs a1*...*ak steps; the `rest` of them follow in a
loop of their own, so n may be prime. Backwards, the rest is reversed first, when the
inner levels hold nothing: a rest of a2 + ... + ak steps costs no memory at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

_NODES = 5_000
"""Most partial nests of a depth that are tried; the first ones are already good."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Nested loops, outermost first, and a loop of `rest` steps after them.

    Attributes:
        factors: Lengths of the nested loops.
        rest: Steps that are left over.
    """

    factors: tuple[int, ...]
    rest: int = 0

    @property
    def inside(self) -> int:
        """Steps that the nested loops run."""
        return prod(self.factors)

    @property
    def length(self) -> int:
        return self.inside + self.rest

    @property
    def sweeps(self) -> int:
        """How often a step is run without being swept back: once at each level."""
        return len(self.factors)

    def peak(self, carry: int, slices: int) -> int:
        """Most bytes that are held at once, beside one step's own.

        Args:
            carry: Bytes of the carry, w: level i holds a_i of them.
            slices: Bytes, for each step, of the cotangents of what is scanned over:
                levels below the first gather them before they go to their places.
        """
        outer, *inner = self.factors
        down = sum(a * carry for a in inner)
        down += sum(prod(inner[i:]) * slices for i in range(len(inner)))
        # Two stacks of cotangents are put together to one.
        joined = self.inside * slices if self.rest else 0
        return outer * carry + max(down, self.rest * (carry + slices)) + joined


def segmented(length: int, segment: int) -> Nest:
    """Segments of exactly `segment` steps, and what is left over."""
    if segment == 1 or segment >= length:
        return Nest((length,))
    return Nest((length // segment, segment), length % segment)


@lru_cache(maxsize=1024)
def nest(length: int, levels: int, carry: int = 1, slices: int = 0) -> Nest:
    """The nest of at most `levels` levels whose peak is least.

    A rest is a second copy of the body to compile: it has to save an eighth.

    Examples:
        >>> nest(48, 2)
        Nest(factors=(8, 6), rest=0)
        >>> nest(997, 3)     # a prime number
        Nest(factors=(9, 11, 10), rest=7)
        >>> nest(48, 2, carry=1, slices=10)     # weights dearer than carries
        Nest(factors=(24, 2), rest=0)
    """
    carry = max(1, carry)
    search = _BranchAndBound(length, carry, slices, Nest((length,)))
    for depth in range(2, min(levels, length.bit_length()) + 1):
        search.nodes = 0
        search.deepen((), depth - 1)
    return search.best


@dataclass(slots=True)
class _BranchAndBound:
    """Branch and bound over the inner factors, innermost first."""

    length: int
    carry: int
    slices: int
    best: Nest
    nodes: int = 0

    def deepen(self, inner: tuple[int, ...], more: int) -> None:
        """Try all ways to put `more` further levels, then the outermost, around."""
        if more == 0:
            self.close(inner)
            return
        done = prod(inner)
        # A level is at least as long as the one inside it: suffix products stay small.
        least = inner[0] if inner else 2
        for factor in self.around(done, more, least):
            if self.nodes > _NODES:
                return
            self.nodes += 1
            if 8 * self.bound((factor, *inner), more) < self.cost(self.best):
                self.deepen((factor, *inner), more - 1)

    def around(self, done: int, more: int, least: int) -> list[int]:
        """Factors to try, those near the balanced one first."""
        room = self.length // done
        root = max(least, round(room ** (1 / (more + 1))))
        most = room // 2
        reach = min(max(root - least, most - root), 2 * root + 8)
        order = [root]
        for step in range(1, reach + 1):
            order += [root - step, root + step]
        return [a for a in order if least <= a <= most]

    def close(self, inner: tuple[int, ...]) -> None:
        outer, rest = divmod(self.length, prod(inner))
        if outer > 1:
            found = Nest((outer, *inner), rest)
            if self.cost(found) < self.cost(self.best):
                self.best = found

    def cost(self, found: Nest) -> int:
        peak = found.peak(self.carry, self.slices)
        return 8 * peak + (peak if found.rest else 0)

    def bound(self, inner: tuple[int, ...], outer: int) -> float:
        """No nest around `inner` with `outer` further levels has a lower peak."""
        held = Nest((0, *inner)).peak(self.carry, self.slices)
        rest = self.cost(self.best) // (8 * self.carry)
        covered = max(1, self.length - rest) / prod(inner)
        return held + outer * covered ** (1 / outer) * self.carry
