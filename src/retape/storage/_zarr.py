"""A store of sharded arrays: each device's part goes to a chunk of its own, by Zarr.

The arrays of a snapshot lie in `arrays/<snapshot>-<a token>/<number>`, each a Zarr (v3)
array whose chunks are the shards, with a checksum each. What says where they are is
the ordinary file of a `DiskStore`, written after them: so a snapshot is whole or not
there, and record, lock, capacities and resuming are those of a `DiskStore`.
"""

# TensorStore and JAX are found when they are needed, and have no types here.
# pyright: standard

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from retape._errors import SnapshotError, StoreError
from retape._extras import require
from retape.storage._base import Place, Record
from retape.storage._disk import DiskStore
from retape.storage._run_directory import stem_of
from retape.storage._sharded._array_directory import ArrayDirectory, processes_of
from retape.storage._sharded._array_files import (
    DTYPES,
    SavedArray,
    begin_to_write,
    key_data,
    read_saved,
    sharding_on,
    spec_of,
)
from retape.storage._trees._tree import leaves, map_tree

C = TypeVar("C")


@dataclass(slots=True)
class ZarrStore(DiskStore[C]):
    """A `DiskStore` that writes JAX's arrays shard by shard, by TensorStore.

    For `retape.jax` with `store=`, and for states of `retape.adjoint` that are arrays
    of JAX's: what is on several devices is not gathered on the host, and comes back
    with the sharding that it had. A later process may have another mesh: `mesh=` says
    which, and each array is sharded along the axes of the same names that its shape can
    be divided by. All else is written as by a `DiskStore`.

    A mesh with devices of several processes (`jax.distributed`) says that these share
    the store: each writes its own parts to the one directory, and the first has the
    small files. Another number of processes may go on with the run.

    Args:
        mesh: The `jax.sharding.Mesh` of this process, or of all processes.

    Raises:
        MissingPackageError: If `tensorstore` is not installed (extra `zarr`).
        StoreError: If the mesh has devices of some of the program's processes; when
            used, for arrays of which other processes have a part, without such a mesh.

    Examples:
        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> from retape.storage import Place, ZarrStore
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = ZarrStore(path)
        ...     _ = store.open("an example")
        ...     store.put(Place(7, 0, "disk"), (jnp.arange(3.0), 2.5), 20)
        ...     found = store.get(Place(7, 0, "disk"))
        ...     store.close()
        >>> found
        (Array([0., 1., 2.], dtype=float32), 2.5)
    """

    mesh: Any = None
    _shardings: dict[tuple[str, str], Any] = field(
        default_factory=dict[tuple[str, str], Any], init=False, repr=False
    )

    @property
    def keeps_devices(self) -> bool:
        """Whether capsules may be JAX's arrays, where JAX has left them."""
        return True

    def _folder(self) -> Any:
        require("zarr", "tensorstore")
        return ArrayDirectory(self.path, processes_of(self.mesh))

    @property
    def is_shared(self) -> bool:
        """Tell whether several processes keep one run in it."""
        return self._arrays.is_shared

    def agree(self, said: bool) -> bool:
        return self._arrays.agree(said)

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        folder = self._arrays.new_folder(stem_of(place.key))
        try:
            saved: Any = self._save(capsule, folder)
            DiskStore.put(self, place, saved, nbytes)
        except StoreError:
            self._arrays.remove_folder(folder)
            raise
        self._arrays.keep_one(place.key, folder)

    def get(self, place: Place) -> C:
        return self._load(DiskStore.get(self, place))

    def record_due(self) -> bool:
        found = DiskStore.record_due(self)
        return self._arrays.first(lambda: found)  # Clocks differ.

    def record(self, record: Record) -> None:
        folder = self._arrays.new_folder("record")
        try:
            saved = self._save(record.cotangent, folder)
            DiskStore.record(self, replace(record, cotangent=saved))
        except StoreError:
            self._arrays.remove_folder(folder)
            raise
        self._arrays.keep_records()

    def _read_record(self, label: str) -> Record | None:
        record = DiskStore._read_record(self, label)
        if record is None:
            return None
        try:
            return replace(record, cotangent=self._load(record.cotangent))
        except SnapshotError:
            # Its arrays are damaged: the record before has arrays of its own.
            self._directory.remove_last_record()
            record = DiskStore._read_record(self, label)
        try:
            return record and replace(record, cotangent=self._load(record.cotangent))
        except SnapshotError as error:
            raise self._no_record(error) from error

    def _record_label(self, value: Any) -> dict[str, object]:
        folders = sorted({saved.folder for saved in _saved_in(value)})
        return {"run": self._label, "arrays": folders}

    @property
    def _arrays(self) -> ArrayDirectory:
        directory: Any = self._directory
        return directory

    def _save(self, tree: Any, folder: str) -> Any:
        """Write the sharded arrays in a tree; the tree with their places."""
        writing = _Writing(self._arrays, folder, self._shardings)

        def written() -> Any:
            try:
                found = map_tree(writing.written, tree)
                for write in writing.begun:
                    write.result()
            except (ValueError, OSError) as failure:
                raise StoreError(
                    f"`{self._arrays.at(folder, '')}` cannot be written: {failure}. "
                    "Free the space or the permission that is missing, and call again: "
                    "the run goes on where it was."
                ) from failure
            return found

        return self._arrays.together(written, writing.alike.digest)

    def _load(self, tree: Any) -> Any:
        saved = _saved_in(tree)
        found: list[Any] = []
        if saved:
            found = self._arrays.together(lambda: list(map(self._read, saved)), bytes)
        rest = iter(found)
        return map_tree(
            lambda leaf: next(rest) if isinstance(leaf, SavedArray) else leaf, tree
        )

    def _read(self, saved: SavedArray) -> Any:
        where = self._arrays.at(saved.folder, saved.name)
        return read_saved(where, saved, self._sharding(saved))

    def _sharding(self, saved: SavedArray) -> Any:
        """As it was, or on the mesh of this process; `None` for where JAX wants it."""
        if not saved.is_placed:
            return None
        known = self._shardings.get((saved.folder, saved.name))
        if known is not None:
            return known
        if self.mesh is not None:
            return sharding_on(self.mesh, saved)
        if any(saved.spec):
            raise StoreError(
                f"an array of shape {saved.shape} was sharded along {saved.spec} "
                "by an earlier process. Pass `mesh=`, the mesh of this one."
            )
        return None


class _Writing:
    """The arrays of one snapshot while they are written.

    Attributes:
        begun: What has begun.
        alike: A digest of what all processes have, each a copy of its own.
    """

    def __init__(
        self,
        arrays: ArrayDirectory,
        folder: str,
        shardings: dict[tuple[str, str], Any],
    ) -> None:
        self.arrays, self.folder, self.shardings = arrays, folder, shardings
        self.begun: list[Any] = []
        self.alike = blake2b(digest_size=16)
        self._count = 0

    def written(self, leaf: Any) -> Any:
        """What a file has of a leaf: of an array of JAX's its place."""
        return self._begin(leaf) if _is_of_jax(leaf) else leaf

    def _begin(self, array: Any) -> Any:
        """Begin to write this process's parts of an array; its place."""
        shared = self.arrays.is_shared
        here = array.is_fully_addressable
        if not (here or shared):
            raise StoreError(
                f"an array of shape {array.shape} has parts in other processes. Pass "
                "`mesh=`, a mesh with devices of all of them: it tells who shares the "
                "store."
            )
        keys, array = key_data(array)
        if array.dtype.name not in DTYPES or not array.size or not array.ndim:
            if not (here or array.is_fully_replicated):
                raise StoreError(
                    f"an array of shape {array.shape} and type `{array.dtype}` has "
                    "parts in other processes, and Zarr has no such type."
                )
            return np.asarray(array)
        name, self._count = str(self._count), self._count + 1
        self.shardings[self.folder, name] = array.sharding
        if here and shared:
            self.alike.update(np.asarray(array).tobytes())
        if self.arrays.is_first or not here:
            where, first = self.arrays.at(self.folder, name), self.arrays.is_first
            self.begun += begin_to_write(where, array, is_first=first)
        spec = spec_of(array.sharding, array.ndim)
        placed = bool(getattr(array, "committed", True))
        kind = array.dtype.name
        return SavedArray(self.folder, name, array.shape, kind, spec, keys, placed)


def _is_of_jax(leaf: Any) -> bool:
    return hasattr(leaf, "addressable_shards")


def _saved_in(tree: Any) -> list[SavedArray]:
    return [leaf for leaf in leaves(tree) if isinstance(leaf, SavedArray)]
