"""What a file keeps of a value: written to a file system in memory, and read."""

from itertools import count
from typing import Any

import fsspec

from retape.storage import AsyncStore, Place, RemoteStore, copy_tree

_places = count()


def written(value):
    """A store that holds a value at step 0, and the place of its file."""
    folder = f"/files/{next(_places)}"
    store = RemoteStore(f"memory://{folder}")
    store.open("a test")
    store.put(Place(0, 0, "disk"), value, 8)
    return store, f"{folder}/step-000000000000.npz"


def through_a_file(value):
    """The value as the next process reads it."""
    return written(value)[0].get(Place(0, 0, "disk"))


def file_system():
    return fsspec.filesystem("memory")


WAYS = [copy_tree, through_a_file]
"""From a value to another that is kept."""


class Noted(AsyncStore):
    """It notes what is read, and what it is told to begin to read."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: list[tuple[str, int]] = []

    def prefetch(self, place: Place) -> Any:
        self.asked.append(("prefetch", place.step))
        return super().prefetch(place)

    def get(self, place: Place) -> Any:
        self.asked.append(("get", place.step))
        return super().get(place)

    def reads(self) -> list[bool]:
        """Of each read, whether it was begun before: at most three calls earlier."""
        # `get` itself begins a read that was not begun before.
        begun = [
            asked
            for before, asked in zip([("", -1), *self.asked], self.asked, strict=False)
            if before != ("get", asked[1])
        ]
        return [
            ("prefetch", step) in begun[max(0, i - 3) : i]
            for i, (what, step) in enumerate(begun)
            if what == "get"
        ]
