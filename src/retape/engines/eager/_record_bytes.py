"""The bytes of a record: what bookkeeping takes beside the tensors.

Lists and tables are counted by what they have allocated, and what lies in them (steps,
signatures, notes on storages) by its number. What PyTorch's own graph takes is not
ours, but the handles in it are.
"""

from sys import getsizeof
from typing import Any, NamedTuple

_INT = getsizeof(1 << 20)
# A step and a signature with what they are made of: in 56 programs 120 to 250 bytes,
# and 2,550 to 3,000 (a fused recurrent layer: 3,700).
_STEP, _SIGNATURE = 160, 2_750
# A handle with the collector's head; a storage's object, with the note hung on it and
# the table that hangs it there; what is noted of one that the program brought along.
_HANDLE, _NOTE, _INPUT = 64, 390, 300
# A note with its share of the tables that it is in, where none is held to look at.
_HELD = 770
# Tables grow by leaps: 534 notes took 771 bytes each where 1,099 took 633.
_LEAPS = 1.25
_CONTAINERS = (tuple, list, set, frozenset)
_NUMBERS = (int, float, complex)
# What the analysis of a gap, or of a whole record, takes for each operator, in Python
# and compiled.
_ANALYSIS, _ANALYSIS_COMPILED = 160, 60


class RecordSize(NamedTuple):
    """The size of a run's record, tensors not among its bytes.

    Attributes:
        bare: What is left when nothing that was recorded is held. How much is held
            depends on the budget, and is let go before much is computed again: were
            its notes counted there, a least budget would not be enough.
        notes: The bytes of notes on what is held.
        held: The number of these.
    """

    bare: int
    notes: int
    held: int

    def notes_on(self, count: int) -> int:
        """About what notes would take if so many values were held."""
        each = _LEAPS * self.notes / self.held if self.held else _HELD
        return round(count * each)


def record_size(run: Any) -> RecordSize:
    """The size of a run's record as it is now."""
    trace, tail, held = run.trace, run.trace.tail, run.trace.held
    tables: list[Any] = [
        trace.steps, trace.producer, trace.nbytes, trace.last_read, trace.roots,
        run.handle_steps, run.handle_slots, run.alive, run.slot_handles,
        trace.signatures,
    ]  # fmt: skip
    numbers = len(trace.steps) + len(trace.producer) + 2 * len(run.handle_steps)
    if run.compiled:  # one object for each number, and a list of them
        numbers = max(len(trace.producer), len(run.handle_steps))
        numbers += numbers // 4
    foreign = sum(note.input is not None for note in trace.notes.values())
    bare = (
        sum(map(getsizeof, tables))
        + _INT * numbers
        + (_NOTE + _INPUT) * foreign
        + _HANDLE * run.living
        + _STEP * len(trace.steps)
        + _SIGNATURE * len(trace.signatures)
    )
    count = len(held.storages)
    notes = held.storages, held.counts, tail.steps, tail.windows
    windows = getsizeof([0]) * len(tail.windows)
    return RecordSize(bare, sum(map(getsizeof, notes)) + windows + _NOTE * count, count)


def analysis_bytes(run: Any) -> int:
    """What is left to analyses of a run's record, beside it."""
    each = _ANALYSIS_COMPILED if run.compiled else _ANALYSIS
    return each * len(run.trace.steps)


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
        if isinstance(item, _CONTAINERS):
            stack += item
        elif type(item).__module__.startswith("retape."):
            names = getattr(type(item), "__slots__", ())
            stack += [getattr(item, each) for each in names if hasattr(item, each)]
        elif not isinstance(item, (str, bytes)):
            found += getsizeof(item) if hasattr(item, "buffer_info") else 0
            continue
        found += getsizeof(item)
    return found
