"""The conformance suite on all stores of the library, and on stores that lie."""

import pytest

from retape import DiskStore, MemoryStore, SnapshotError, StoreError
from retape.testing import check_store


def test_a_store_of_one_type_is_checked_with_its_own_values(tmp_path):
    values = ((1, 2), (3,), ())
    found = check_store(lambda: DiskStore(tmp_path), values=values, view=sorted)
    assert len(found) == 10


class Forgetful(MemoryStore):
    def drop(self, place):
        super().drop(place)
        self._slots.clear()


class Boastful(MemoryStore):
    def put(self, place, capsule, nbytes):
        super().put(place, capsule, nbytes)
        self.peak_snapshots += 1


class Rounding(MemoryStore):
    def get(self, place):
        found = super().get(place)
        return found[:1] if isinstance(found, tuple) else found


class Stale(MemoryStore):
    """Keeps what was there first."""

    first: dict = {}

    def get(self, place):
        return self.first.setdefault(place.slot, super().get(place))


class Generous(MemoryStore):
    def get(self, place):
        try:
            return super().get(place)
        except StoreError:
            return None


class Careless(MemoryStore):
    def get(self, place):
        return self._slots[place.where][1]


class Mixing(MemoryStore):
    """By step, whatever it is that begins there."""

    def put(self, place, capsule, nbytes):
        super().put(place, capsule, nbytes)
        for where, (step, held, size) in self.items():
            found = capsule if step == place.step else held
            self._slots[where] = step, found, size

    def items(self):
        return list(self._slots.items())


class Hasty(DiskStore):
    """Removes what was dropped at once."""

    def drop(self, place):
        super().drop(place)
        while self._dropped:
            self._remove_dropped()


class Silent(DiskStore):
    def record(self, record):
        pass


class Open(DiskStore):
    """Takes any run."""

    def open(self, label):
        return super().open("always the same")


class Hoarding(DiskStore):
    def clear(self):
        pass


class BySlot(DiskStore):
    """Finds a snapshot in the slot in which this process put it."""

    def __init__(self, path):
        super().__init__(path)
        self.slots = {}

    def put(self, place, capsule, nbytes):
        super().put(place, capsule, nbytes)
        self.slots[place.slot] = place.key

    def get(self, place):
        if self.slots.get(place.slot) != place.key:
            raise SnapshotError(f"slot {place.slot} is empty")
        return super().get(place)


class Unlearned(DiskStore):
    """Does not ask what there is when a run is taken up."""

    def __init__(self, path):
        super().__init__(path)
        self.known = set()

    def put(self, place, capsule, nbytes):
        super().put(place, capsule, nbytes)
        self.known.add(place.key)

    def drop(self, place):
        self.known.remove(place.key)
        super().drop(place)


class Final(DiskStore):
    """Ends the run where a snapshot could be made again."""

    def get(self, place):
        try:
            return super().get(place)
        except SnapshotError as error:
            raise StoreError("it is lost") from error


LIARS = [
    (Forgetful, "But a `StoreError` was raised: slot 1 on tier 'memory' is empty"),
    (Boastful, "are the most that were held at once. But two were held, of 130 bytes"),
    (
        Rounding,
        "`get` gives back what was `put` .* But the state before step 3 in",
    ),
    (Stale, "But slot 0 gave back what it had held before"),
    (Generous, "that holds nothing is a `StoreError`. But it gave something"),
    (Careless, "that holds nothing is a `StoreError`. But it was a `KeyError`"),
    (Mixing, "do not replace each other. But the tape took the place of the state"),
    (Hasty, "until a record is written. But step 7 was gone"),
    (Silent, "was opened again is given back. But the record of 8 steps left of 9 ca"),
    (Open, "refuses another label with a `StoreError`. But it was opened"),
    (Hoarding, "a law of stores"),
    (BySlot, "was opened again is given back. But a `SnapshotError` was raised"),
    (Unlearned, "was opened again is given back. But a `KeyError` was raised"),
    (Final, "a `SnapshotError`. But the driver would not make it again"),
]


@pytest.mark.parametrize(("liar", "said"), LIARS)
def test_a_store_that_lies_is_told_which_law_it_breaks(liar, said, tmp_path):
    make = liar if issubclass(liar, MemoryStore) else lambda: liar(tmp_path)
    with pytest.raises(StoreError, match=said) as caught:
        check_store(make)
    assert str(caught.value).startswith(f"`{liar.__name__}` breaks a law of stores.")
