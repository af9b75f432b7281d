"""The bytes of a record: what bookkeeping takes beside the tensors.

Lists and tables are counted by what they have allocated, and what lies in them (steps,
signatures, geometries, notes on storages) by some of it, spread over all: programs are
loops and blocks, so a few hundred say what thousands take. What PyTorch's own graph
takes is not ours, but the handles in it are.
"""

from collections.abc import Iterable, Sequence
from sys import getsizeof
from typing import Any

_LOOKED_AT = 16
_INT = getsizeof(1 << 20)
# A handle with the collector's head; a storage's object, with the note hung on it and
# the table that hangs it there; what is noted of one that the program brought along.
_HANDLE, _NOTE, _INPUT = 64, 370, 300
# A note with its share of the tables that it is in, where none is held to look at.
_HELD = 770
# Tables grow by leaps: 534 notes took 771 bytes each where 1,099 took 633.
_LEAPS = 1.25
_CONTAINERS = (tuple, list, set, frozenset)
_NUMBERS = (int, float, complex)
# What the analysis of a gap, or of a whole record, takes for each operator, in Python
# and compiled.
_ANALYSIS, _ANALYSIS_COMPILED = 160, 60
_signatures: dict[str, int] = {}


class RecordSize:
    """The size of a run's record as it is now, computed when it is asked for.

    Args:
        run: It may go on, or be let go: what is needed of it is noted at once.
        like: An earlier size of the same record: its steps are taken to be as large.
    """

    __slots__ = (
        "_certain", "_count", "_found", "_held", "_like", "_signatures", "_steps",
    )  # fmt: skip

    def __init__(self, run: Any, like: "RecordSize | None" = None) -> None:
        self._like = like
        self._found: tuple[float, float] | None = None
        trace, tail, held = run.trace, run.trace.tail, run.trace.held
        tables: list[Any] = [
            trace.steps, trace.producer, trace.nbytes, trace.last_read, trace.roots,
            run.handle_steps, run.handle_slots, run.alive, run.slot_handles,
            trace.signatures,
        ]  # fmt: skip
        notes = held.storages, held.counts, tail.steps, tail.windows
        self._count = len(held.storages)
        self._held = (
            sum(map(getsizeof, notes))
            + getsizeof([0]) * len(tail.windows)
            + _NOTE * len(held.storages)
        )
        numbers = len(trace.steps) + len(trace.producer) + 2 * len(run.handle_steps)
        if run.compiled:  # one object for each number, and a list of them
            numbers = max(len(trace.producer), len(run.handle_steps))
            numbers += numbers // 4
        self._certain = (
            sum(map(getsizeof, tables))
            + _INT * numbers
            + (_NOTE + _INPUT) * len(trace.foreign)
            + _HANDLE * run.living
        )
        self._steps = len(trace.steps), () if like else _some(trace.steps)
        every = () if like else list(trace.signatures.items())
        self._signatures = len(trace.signatures), _some(every)

    def nbytes(self) -> int:
        """About the bytes of the record, tensors not among them."""
        return self.without_notes() + self.notes()

    def without_notes(self) -> int:
        """Those of them that are left when nothing that was recorded is held.

        How much is held depends on the budget, and is let go before much is computed
        again: were its notes counted there, a least budget would not be enough.
        """
        step, signature = (self._like or self)._means()
        found = self._steps[0] * step + self._signatures[0] * signature
        return round(self._certain + found)

    def notes(self) -> int:
        """Those of them that are notes on what is held."""
        return self._held

    def notes_on(self, count: int) -> int:
        """About what they would be if so many values were held."""
        each = _LEAPS * self._held / self._count if self._count else _HELD
        return round(count * each)

    def _means(self) -> tuple[float, float]:
        """The bytes of a step and of a signature."""
        if self._found is None:
            steps, signatures = self._steps[1], self._signatures[1]
            self._found = (
                _mean(map(_step_bytes, steps)),
                _mean(map(_signature_bytes, signatures)),
            )
        return self._found


def analysis_bytes(run: Any) -> int:
    """What is left to analyses of a run's record, beside it."""
    each = _ANALYSIS_COMPILED if run.compiled else _ANALYSIS
    return each * len(run.trace.steps)


def _some(items: Sequence[Any]) -> Sequence[Any]:
    return items[:: max(1, len(items) // _LOOKED_AT)]


def _mean(sizes: Iterable[int]) -> float:
    found = list(sizes)
    return sum(found) / max(1, len(found))


def _step_bytes(step: Any) -> int:
    writes = sum(getsizeof(pair) + _INT for pair in step.writes)
    return (
        getsizeof(step)
        + getsizeof(step.reads)
        + (writes + getsizeof(step.writes) if writes else 0)
    )


def _signature_bytes(entry: tuple[Any, Any]) -> int:
    """Those of one operator have about one size: each is looked through once."""
    name = entry[1].func._schema.name
    if name not in _signatures:
        _signatures[name] = deep_bytes(entry)
    return _signatures[name]


def deep_bytes(*items: Any) -> int:
    """The bytes of tuples, lists, sets, records and arrays, each counted once.

    Numbers in them are left out: to know which are the same would take more.

    Examples:
        >>> deep_bytes((1, 2)) > deep_bytes(()) > 0
        True
    """
    seen: set[int] = set()
    found, stack = 0, list(items)
    while stack:
        item = stack.pop()
        if isinstance(item, _NUMBERS) or id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            stack += [*item, *item.values()]
        elif isinstance(item, _CONTAINERS):
            stack += item
        elif type(item).__module__.startswith("retape."):
            names = getattr(type(item), "__slots__", ())
            stack += [getattr(item, each) for each in names if hasattr(item, each)]
        elif not isinstance(item, (str, bytes)):
            found += getsizeof(item) if hasattr(item, "buffer_info") else 0
            continue
        found += getsizeof(item)
    return found
