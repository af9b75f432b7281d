"""Decisions for intervals of any length: by a table, and beyond it by the space's rule.

A table grows with the square of the stages. What is longer than it reaches is cut at
binomial splits, or as the space says, with its start where what is held longest should
be.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Generic, TypeVar

from retape.schedule._binomial import known_advances
from retape.schedule._policy_stream import Held, Released
from retape.schedule._tables._kept_table import KeptTable, kept_table
from retape.schedule._tables._space import Kind, Space

R = TypeVar("R", bound=Hashable)


class TablePolicy(Generic[R]):
    """The `Policy` of a space.

    Args:
        space: What may be kept.
        reach: The longest interval that a table decides about.
        grows: Whether tables are made as they are needed, each of a power of two: few
            while a run goes on whose length is not known.
    """

    def __init__(self, space: Space[R], reach: int, *, grows: bool = False) -> None:
        self.space, self.reach, self.grows = space, reach, grows
        self._tabled = space.tabled
        self._tables: dict[int, KeptTable[R]] = {}
        # The same few are asked for again and again: half of a stream's time.
        self._kept = lru_cache(maxsize=4096)(self._keep)
        self._cut = lru_cache(maxsize=4096)(self._split)
        self._read = lru_cache(maxsize=4096)(self._after_read)
        self.is_alone = lru_cache(maxsize=4096)(self._is_alone)

    def keep(self, lo: int, hi: int, room: R) -> Held[R]:
        """What the table keeps, or the space's rule."""
        return self._kept(hi - lo, room)

    def split(self, lo: int, hi: int, held: Held[R]) -> int:
        """Where the table cuts, or the space's rule."""
        return self._cut(hi - lo, held)

    def after_read(self, lo: int, hi: int, held: Held[R]) -> Held[R] | Released[R]:
        """The state stays, or gives its place up where the table says so."""
        return self._read(hi - lo, held)

    def _keep(self, stages: int, room: R) -> Held[R]:
        space = self.space
        if stages > self.reach:
            kind = space.keep(stages, room)
        else:
            kind = self._table(stages).keep(stages, space.seen(room))
        beside = space.take(room, kind)
        assert beside is not None
        return Held(kind.tier, kind.tape, beside)

    def _split(self, stages: int, held: Held[R]) -> int:
        if stages > self.reach:
            return self.space.split(stages, held.room)
        kind = self.space.of(held.tier)
        return self._table(stages).split(stages, kind, self._beside(kind, held.room))

    def _after_read(self, stages: int, held: Held[R]) -> Held[R] | Released[R]:
        if stages > self.reach:
            return held
        kind = self.space.of(held.tier)
        beside = self._beside(kind, held.room)
        if self._table(stages).gives_back(stages, kind, beside):
            return Released(self.space.give(held.room, kind))
        return held

    def _is_alone(self, held: Held[R]) -> bool:
        return self.space.is_alone(held.room, self.space.of(held.tier))

    def price(self, tier: str, stages: int, room: R) -> float:
        """What reversing an interval costs whose start lies on a tier: r + X."""
        kind = self.space.of(tier)
        if stages <= 1:
            return kind.read if stages else 0.0
        if stages > self.reach:
            most = 1 + self.space.free(room)
            return kind.read + self.space.forward * known_advances(stages, most)
        beside = self._beside(kind, room)
        return kind.read + self._table(stages).again(stages, kind, beside)

    def _beside(self, kind: Kind, room: R) -> R:
        """What is free beside a state, as the table knows it."""
        found = self.space.take(self.space.seen(self.space.give(room, kind)), kind)
        assert found is not None
        return found

    def _table(self, stages: int) -> KeptTable[R]:
        size = self.reach
        if self.grows:
            size = min(size, max(64, 1 << (stages - 1).bit_length()))
        if size not in self._tables:
            self._tables[size] = kept_table(self._tabled, size)
        return self._tables[size]
