"""A store of sharded arrays: each device's part goes to a chunk of its own, by Zarr.

The arrays of a snapshot lie in `arrays/<snapshot>-<a token>/<number>`, each a Zarr (v3)
array whose chunks are the shards, with a checksum each. What says where they are is
the ordinary file of a `DiskStore`, written after them: so a snapshot is whole or not
there, and record, lock, capacities and resuming are those of a `DiskStore`.
"""

# TensorStore and JAX are found when they are needed, and have no types here.
# pyright: standard

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar, TypeVar

from retape._errors import SnapshotError, StoreError
from retape._extras import require
from retape.storage._codec import read_label
from retape.storage._disk import DiskStore
from retape.storage._durable import Record
from retape.storage._run_directory import RECORD, RECORD_BEFORE, Key, RunDirectory
from retape.storage._trees._kinds import opaque, take_apart
from retape.storage._trees._leaves import PLAIN, is_array

C = TypeVar("C")

_FOLDER = re.compile(r"(step|tape)-\d{12}-[0-9a-f]{8}|record-[0-9a-f]{8}")
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
    "bfloat16 complex64 complex128".split()
)
"""What a Zarr array may consist of; others are written as a `DiskStore` writes them."""


@dataclass(frozen=True, slots=True)
class SavedArray:
    """Where an array of a snapshot is.

    Attributes:
        folder: The snapshot's.
        name: The array's, a number.
        shape: Its shape.
        dtype: The name of its type.
        spec: For each axis the names of the mesh's axes that it is sharded along.
        keys: The generator, if it is the data of random keys.
    """

    folder: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[tuple[str, ...], ...]
    keys: str = ""


@dataclass(slots=True)
class ZarrStore(DiskStore[C]):
    """A `DiskStore` that writes JAX's arrays shard by shard, by TensorStore.

    For `retape.jax` with `store=`, and for states of `retape.adjoint` that are arrays
    of JAX's: what is on several devices is not gathered on the host, and comes back
    with the sharding that it had. A later process may have another mesh: `mesh=` says
    which, and each array is sharded along the axes of the same names that its shape can
    be divided by. All else is written as by a `DiskStore`.

    Args:
        mesh: The `jax.sharding.Mesh` on which a later process restores.

    Raises:
        MissingPackageError: If `tensorstore` is not installed (extra `zarr`).
        StoreError: When used, for arrays of which other processes have a part.

    Examples:
        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> from retape.storage import ZarrStore
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = ZarrStore(path)
        ...     _ = store.open("an example")
        ...     store.put(7, 0, "disk", (jnp.arange(3.0), 2.5), 20)
        ...     found = store.get(7, 0, "disk")
        ...     store.close()
        >>> found
        (Array([0., 1., 2.], dtype=float32), 2.5)
    """

    mesh: Any = None
    _shardings: dict[tuple[str, str], Any] = field(
        default_factory=dict[tuple[str, str], Any], init=False, repr=False
    )

    keeps_devices: ClassVar[bool] = True
    """Capsules may be JAX's arrays, where JAX has left them."""

    def _folder(self) -> RunDirectory:
        require("zarr", "tensorstore")
        return _ArrayDirectory(self.path)

    def put(
        self,
        step: int,
        slot: int,
        tier: str,
        capsule: C,
        nbytes: int,
        *,
        tape: bool = False,
    ) -> None:
        key = ("tape" if tape else "step", step)
        folder = f"{_stem(key)}-{uuid.uuid4().hex[:8]}"
        try:
            saved: Any = self._save(capsule, folder)
            DiskStore.put(self, step, slot, tier, saved, nbytes, tape=tape)
        except BaseException:
            self._arrays.remove(folder)
            raise
        self._arrays.keep_one(key, folder)

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        return self._load(DiskStore.get(self, step, slot, tier, tape=tape))

    def record(self, record: Record) -> None:
        folder = f"record-{uuid.uuid4().hex[:8]}"
        try:
            saved = self._save(record.cotangent, folder)
            DiskStore.record(self, replace(record, cotangent=saved))
        except BaseException:
            self._arrays.remove(folder)
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
            self._do_without_record(label, error)
            return None

    def _record_label(self, value: Any) -> dict[str, object]:
        folders = sorted({saved.folder for saved in _saved_in(value)})
        return {"run": self._label, "arrays": folders}

    @property
    def _arrays(self) -> _ArrayDirectory:
        directory: Any = self._directory
        return directory

    def _save(self, tree: Any, folder: str) -> Any:
        """Write the sharded arrays in a tree; the tree with their places."""
        arrays: list[Any] = []
        try:
            waiting: list[Any] = []

            def saved(array: Any) -> Any:
                if not array.is_fully_addressable:
                    raise StoreError(
                        f"an array of shape {array.shape} has parts in other "
                        "processes, and a `ZarrStore` is for the devices of one. Use "
                        "`RankStore` with a store for each process."
                    )
                keys, array = _key_data(array)
                if array.dtype.name not in _DTYPES or not array.size or not array.ndim:
                    return import_module("numpy").asarray(array)
                name = str(len(arrays))
                arrays.append(array)
                # What nobody has put on a device goes where JAX wants it.
                if getattr(array, "committed", True):
                    self._shardings[folder, name] = array.sharding
                waiting.extend(_written(self._arrays.at(folder, name), array))
                spec = _spec(array.sharding, array.ndim)
                kind = array.dtype.name
                return SavedArray(folder, name, array.shape, kind, spec, keys)

            found = _map(tree, lambda leaf: hasattr(leaf, "addressable_shards"), saved)
            for write in waiting:
                write.result()
            return found
        except StoreError:
            raise
        except (ValueError, OSError) as error:
            raise StoreError(
                f"`{self._arrays.at(folder, '')}` cannot be written: {error}. Free the "
                "space or the permission that is missing, and call again: the run goes "
                "on where it was."
            ) from error

    def _load(self, tree: Any) -> Any:
        return _map(tree, lambda leaf: isinstance(leaf, SavedArray), self._loaded)

    def _loaded(self, saved: SavedArray) -> Any:
        jax = import_module("jax")
        where = self._arrays.at(saved.folder, saved.name)
        sharding = self._sharding(saved, jax)
        try:
            source = _opened(where)
            if source.shape != saved.shape or source.dtype.name != saved.dtype:
                raise ValueError("of another shape or type")
            if sharding is None:
                found = jax.numpy.asarray(source.read().result())
            else:
                found = jax.make_array_from_callback(
                    saved.shape, sharding, lambda index: source[index].read().result()
                )
        except (ValueError, OSError) as error:
            reason = str(error).partition(" [")[0]
            raise SnapshotError(
                f"`{where}` is not there or damaged ({reason}). Its state is "
                "recomputed."
            ) from None
        return jax.random.wrap_key_data(found, impl=saved.keys) if saved.keys else found

    def _sharding(self, saved: SavedArray, jax: Any) -> Any:
        """As it was, or on the mesh of this process; `None` for one device."""
        known = self._shardings.get((saved.folder, saved.name))
        if known is not None:
            return known
        if self.mesh is None:
            if any(saved.spec):
                raise StoreError(
                    f"an array of shape {saved.shape} was sharded along {saved.spec} "
                    "by an earlier process. Pass `mesh=`, the mesh of this one."
                )
            return None
        sizes = dict(self.mesh.shape)
        axes: list[tuple[str, ...]] = []
        for names, size in zip(saved.spec, saved.shape, strict=True):
            kept: tuple[str, ...] = ()
            for name in names:
                size, left = divmod(size, sizes.get(name, size + 1))
                if left or not size:
                    break
                kept = (*kept, name)
            axes.append(kept)
        spec = jax.sharding.PartitionSpec(*axes)
        return jax.sharding.NamedSharding(self.mesh, spec)


class _ArrayDirectory(RunDirectory):
    """A run's directory with a folder of arrays for each snapshot and record."""

    __slots__ = ()

    def at(self, folder: str, name: str) -> Path:
        """Where an array is.

        Raises:
            SnapshotError: If this library gives no such names, or made no such link.
        """
        found = self.path / "arrays" / folder / name
        known = _FOLDER.fullmatch(folder) and (name.isdigit() or not name)
        if not known or any(p.is_symlink() for p in (found, *list(found.parents)[:2])):
            raise SnapshotError(f"`{found}` is no place of arrays. Remove it.")
        return found

    def remove(self, key: Key | str) -> None:
        """Remove a snapshot with its arrays; or a folder of arrays."""
        if isinstance(key, str):
            rmtree(self.path / "arrays" / key, ignore_errors=True)
            return
        RunDirectory.remove(self, key)
        self.keep_one(key, "")

    def keep_one(self, key: Key, folder: str) -> None:
        """Remove all other folders of a snapshot."""
        for found in (self.path / "arrays").glob(f"{_stem(key)}-*"):
            if found.name != folder:
                self.remove(found.name)

    def keep_records(self) -> None:
        """Remove the arrays of records that have gone."""
        files = (self.path / RECORD, self.path / RECORD_BEFORE)
        kept = {name for file in files for name in read_label(file).get("arrays", ())}
        for found in (self.path / "arrays").glob("record-*"):
            if found.name not in kept:
                self.remove(found.name)

    def remove_records(self) -> None:
        RunDirectory.remove_records(self)
        self.keep_records()

    def remove_unfinished(self) -> None:
        RunDirectory.remove_unfinished(self)
        self.keep_records()
        stems = {_stem(key) for key in self.snapshots()}
        for found in (self.path / "arrays").glob("*-*-*"):
            if found.name.rpartition("-")[0] not in stems:
                self.remove(found.name)


def _stem(key: Key) -> str:
    return f"{key[0]}-{key[1]:012d}"


def _written(where: Path, array: Any) -> list[Any]:
    """Begin to write each part of an array once, from the device that has it."""
    numpy = import_module("numpy")
    chunks = array.sharding.shard_shape(array.shape)
    metadata = {
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
    }
    target = _store(where, metadata=metadata, create=True, delete_existing=True)
    shards = [part for part in array.addressable_shards if part.replica_id == 0]
    return [target[part.index].write(numpy.asarray(part.data)) for part in shards]


def _key_data(array: Any) -> tuple[str, Any]:
    """The generator of random keys and their data; of others no generator."""
    jax = import_module("jax")
    if not jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        return "", array
    return str(jax.random.key_impl(array)), jax.random.key_data(array)


def _opened(where: Path) -> Any:
    return _store(where, open=True, read=True)


def _store(where: Path, metadata: Any = None, **how: Any) -> Any:
    spec: dict[str, Any] = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{where}/"},
        # A part that is zero is written, too, so that one that is missing is lost.
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
    }
    if metadata is not None:
        spec["metadata"] = metadata
    return import_module("tensorstore").open(spec, **how).result()


def _spec(sharding: Any, ndim: int) -> tuple[tuple[str, ...], ...]:
    """The names of the mesh's axes for each axis of an array."""
    given = list(getattr(sharding, "spec", None) or ())
    given += [None] * (ndim - len(given))
    names = [(n,) if isinstance(n, str) else n for n in given]
    return tuple(n if isinstance(n, tuple) else () for n in names)


def _map(tree: Any, is_leaf: Any, change: Any) -> Any:
    """The same containers with other leaves."""
    if is_leaf(tree):
        return change(tree)
    if type(tree) in PLAIN or is_array(tree) or opaque(type(tree)) is not None:
        return tree
    node = take_apart(tree)
    if node is None or node.tag not in "tldno":  # NumPy's own kinds stay as they are.
        return tree
    return node.build([_map(part, is_leaf, change) for part in node.parts])


def _saved_in(tree: Any) -> list[SavedArray]:
    found: list[SavedArray] = []
    _map(tree, lambda leaf: isinstance(leaf, SavedArray), found.append)
    return found
