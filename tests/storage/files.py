"""What a file keeps of a value: written to a file system in memory, and read."""

from itertools import count

import fsspec

from retape.storage import Place, RemoteStore, copy_tree

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
