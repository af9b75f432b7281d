"""`check_store`: does a store keep what the driver puts into it?"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from retape._errors import SnapshotError, StoreError
from retape.storage import Place, Record, SnapshotStore
from retape.storage._base import is_durable
from retape.testing._laws import maker_of, seen, tried

_VALUES: tuple[Any, ...] = (
    (0, [1.5, None, True, "text"]),
    {"x": (2.5, -0.0), "far": 10**40},
    (3, 1 - 2j, []),
)
_LABEL = "a check"


class Trial:
    """A store under trial, and values to put into it.

    Attributes:
        make: Gives the store, at its best another one at the same place.
        store: The one that is used now.
        values: Three capsules, all different.
        view: From a capsule to a tree that shows all of it, if it is none.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        values: Sequence[Any],
        view: Callable[[Any], Any] | None,
    ) -> None:
        self.make, self.values, self.view = make, values, view
        self.store: Any = make()

    def begin(self) -> None:
        """An empty store."""
        if is_durable(self.store):
            self.store.close()
            self.store.clear()
            self.store.open(_LABEL)

    def reopen(self) -> Record | None:
        """The store as the next process has it."""
        self.store.close()
        self.store = self.make()
        return self.store.open(_LABEL)

    def end(self) -> None:
        """Empty it, and give it up."""
        if is_durable(self.store):
            self.store.clear()
            self.store.close()

    def put(self, step: int, slot: int, value: int, nbytes: int = 100) -> None:
        """Put one of the values."""
        self.store.put(Place(step, slot), self.values[value], nbytes)

    def holds(self, step: int, slot: int, value: int) -> bool:
        """Tell whether a slot gives back one of the values."""
        return self.gives(Place(step, slot), value)

    def gives(self, place: Place, value: int) -> bool:
        """Tell whether a place does."""
        found = self.store.get(place)
        return seen(found, self.view) == seen(self.values[value], self.view)


Law: TypeAlias = Callable[[Trial], Iterator[str]]


def what_is_put_is_given_back(trial: Trial) -> Iterator[str]:
    """`get` gives back what was `put` into a slot, as often as it is asked."""
    for slot, step in enumerate((3, 7, 1)):
        trial.put(step, slot, slot)
    for slot, step in [(0, 3), (1, 7), (2, 1), (0, 3)]:
        if not trial.holds(step, slot, slot):
            yield f"the state before step {step} in slot {slot} came back different"
    for slot, step in enumerate((3, 7, 1)):
        trial.store.drop(Place(step, slot))


def a_slot_is_free_again(trial: Trial) -> Iterator[str]:
    """A slot that was dropped can be filled again, with another step or the same."""
    trial.put(4, 0, 0)
    trial.store.drop(Place(4, 0))
    trial.put(9, 0, 1)
    if not trial.holds(9, 0, 1):
        yield "slot 0 gave back what it had held before"
    trial.store.drop(Place(9, 0))
    trial.put(9, 0, 2)
    if not trial.holds(9, 0, 2):
        yield "the state before step 9, put again, came back as it was at first"
    trial.store.drop(Place(9, 0))


def an_empty_slot_is_an_error(trial: Trial) -> Iterator[str]:
    """`get` of a slot that holds nothing is a `StoreError`."""
    try:
        trial.store.get(Place(5, 3))
    except StoreError:
        return
    except Exception as error:  # whatever it is, it is not what was promised
        yield f"it was a `{type(error).__name__}`"
    else:
        yield "it gave something"


def the_most_is_counted(trial: Trial) -> Iterator[str]:
    """`peak_snapshots` and `peak_bytes` are the most that were held at once."""
    trial.put(2, 0, 0, 100)
    trial.put(6, 1, 1, 30)
    trial.store.drop(Place(2, 0))
    trial.put(8, 0, 2, 20)
    trial.store.drop(Place(8, 0))
    trial.store.drop(Place(6, 1))
    peaks = trial.store.peak_snapshots, trial.store.peak_bytes
    if trial.store.counts_other_bytes:
        # A store that packs counts what it keeps.
        peaks = peaks[0], 130 if peaks[1] > 0 else 0
    if peaks != (2, 130):
        yield f"two were held, of 130 bytes, and it counted {peaks[0]} of {peaks[1]}"


def tapes_are_kept_apart(trial: Trial) -> Iterator[str]:
    """A tape and a state that begin at the same step do not replace each other."""
    tape = [(1, 2.5), None]
    trial.put(3, 0, 0)
    trial.store.put(Place(3, 1, tape=True), tape, 50)
    if not trial.holds(3, 0, 0):
        yield "the tape took the place of the state"
    found = trial.store.get(Place(3, 1, tape=True))
    if seen(found) != seen(tape):
        yield "the tape came back different"
    trial.store.drop(Place(3, 0))
    trial.store.drop(Place(3, 1, tape=True))


def the_next_process_finds_it(trial: Trial) -> Iterator[str]:
    """What `steps` names after the store was opened again is given back."""
    for slot, step in enumerate((3, 7, 1)):
        trial.put(step, slot, slot)
    trial.store.record(Record(9, 8, (1.5, [2]), _LABEL))
    record = trial.reopen()
    if record is None or (record.length, record.left) != (9, 8):
        yield f"the record of 8 steps left of 9 came back as {record!r}"
    elif seen(record.cotangent) != seen((1.5, [2])):
        yield "the cotangent in the record came back different"
    trial.store.keep_only(trial.store.steps())
    for step in trial.store.steps():
        value = (3, 7, 1).index(step)
        # The next process has other slots, and asks before it has any.
        for place in (Place(step, value), Place(step, -1, "disk"), Place(step, 5)):
            if not trial.gives(place, value):
                yield f"the state before step {step} came back different at {place}"
        trial.store.drop(Place(step, 5))
        trial.put(step, 6, value)
        if not trial.holds(step, 6, value):
            yield f"the state before step {step}, put again, came back different"


def what_is_lost_is_told_from_what_ends_a_run(trial: Trial) -> Iterator[str]:
    """A durable store says of a snapshot that is not there: a `SnapshotError`."""
    try:
        trial.store.get(Place(5, 3))
    except SnapshotError:
        return
    except StoreError:
        pass
    yield "the driver would not make it again, and end the run"


def what_is_dropped_waits_for_the_record(trial: Trial) -> Iterator[str]:
    """What was dropped is there for the next process until a record is written."""
    trial.put(3, 0, 0)
    trial.put(7, 1, 1)
    trial.store.record(Record(9, 9, None, _LABEL))
    there = trial.store.steps()
    trial.store.drop(Place(7, 1))
    trial.reopen()
    lost = there - trial.store.steps()
    if lost:
        yield f"step {lost.pop()} was gone, and the record that needs it was not"
    trial.store.keep_only(trial.store.steps() - {7})
    if 7 in trial.store.steps():
        yield "`keep_only` kept a step that it was not given"


def another_run_is_refused(trial: Trial) -> Iterator[str]:
    """A store that holds one run refuses another label with a `StoreError`."""
    trial.store.record(Record(9, 9, None, _LABEL))
    trial.store.close()
    trial.store = trial.make()
    try:
        trial.store.open("another run")
    except StoreError:
        trial.store.open(_LABEL)
    else:
        yield "it was opened"


def what_is_cleared_is_gone(trial: Trial) -> Iterator[str]:
    """After `clear` a store holds no run: `open` gives `None`, `steps` nothing."""
    trial.put(3, 0, 0)
    trial.store.record(Record(9, 8, (1.5,), _LABEL))
    trial.store.clear()
    record = trial.reopen()
    if record is not None:
        yield f"`open` gave {record!r}"
    if trial.store.steps():
        yield f"`steps` gave {sorted(trial.store.steps())}"


LAWS: tuple[Law, ...] = (
    # First: a store that is passed itself, and not made anew, has held nothing yet.
    the_most_is_counted,
    what_is_put_is_given_back,
    a_slot_is_free_again,
    an_empty_slot_is_an_error,
    tapes_are_kept_apart,
)
"""What every store promises."""
DURABLE_LAWS: tuple[Law, ...] = (
    the_next_process_finds_it,
    what_is_lost_is_told_from_what_ends_a_run,
    what_is_dropped_waits_for_the_record,
    another_run_is_refused,
    what_is_cleared_is_gone,
)
"""What a store that outlives its process promises besides."""


def check_store(
    store: SnapshotStore[Any] | Callable[[], SnapshotStore[Any]],
    *,
    values: Sequence[Any] = _VALUES,
    view: Callable[[Any], Any] | None = None,
) -> tuple[str, ...]:
    """Try the laws of stores on one; a law that is broken is an error that says so.

    Three snapshots must fit, of 100 bytes. A durable store is cleared.

    Args:
        store: An empty store; or a function that makes one. That of a durable store
            must make it at the same place each time, as the next process would.
        values: Three capsules, all different, for a store that takes only some.
        view: From a capsule to a tree of arrays and plain values that shows all of it,
            if it is not one.

    Returns:
        The laws that were tried, a sentence each.

    Raises:
        StoreError: If a law is broken, or the store lacks a method.

    Examples:
        >>> import retape
        >>> from retape.testing import check_store
        >>> check_store(retape.MemoryStore)[0]
        '`peak_snapshots` and `peak_bytes` are the most that were held at once.'
        >>> class Forgetful(retape.MemoryStore):
        ...     def drop(self, place):
        ...         self._slots.clear()
        >>> check_store(Forgetful)
        Traceback (most recent call last):
            ...
        retape._errors.StoreError: `Forgetful` breaks a law of stores. The law: ...
    """
    make = maker_of(store, _is_store)
    found = make()
    if not _is_store(found):
        raise StoreError(
            f"`{type(found).__name__}` is not a store: it is no subclass of "
            "`retape.storage.SnapshotStore`. Make it one, with `put`, `get` and `drop`."
        )
    laws = LAWS + (DURABLE_LAWS if is_durable(found) else ())

    def looked(law: Law) -> Iterator[str]:
        trial = Trial(make, values, view)
        trial.begin()
        wrong = next(law(trial), None)
        trial.end()
        yield from [] if wrong is None else [wrong]

    def broken(wrong: str) -> StoreError:
        return StoreError(
            f"`{type(found).__name__}` breaks a law of stores. The law: {wrong}. See "
            "`retape.storage.SnapshotStore`."
        )

    return tuple(tried(law, lambda law=law: looked(law), broken) for law in laws)


def _is_store(found: Any) -> bool:
    return isinstance(found, SnapshotStore)
