"""Snapshots kept outside of the device's memory: in host memory, or in a store.

A snapshot is complete when the next one is placed. What only it holds is then written
to the store, and a small stand-in takes the place of the storage; whoever asks for the
slot is given a storage read back from the store, which dies after use. Snapshots that
are put away count as no bytes, so none is given up, and each step is recomputed once.

Nobody waits for it where that can be helped: a device copies beside its computing
(`keep/_copies`), and a store that works in the background (`AsyncStore`) writes beside
the program and reads the snapshot that the sweep comes to next while it computes.
"""

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Any

import torch
from torch import UntypedStorage as Storage

from retape._errors import SnapshotError
from retape.engines.eager.keep._copies import Event, HostCopies
from retape.engines.eager.trace._geometry import below_autograd, storage_refcount
from retape.engines.eager.trace._holdings import TAG, Buffer
from retape.engines.eager.trace._run import Run
from retape.storage import Place, SnapshotStore
from retape.storage._base import is_durable
from retape.storage._disk import AnyStore, store_of
from retape.storage._memory import MemoryStore

Store = SnapshotStore[Any]
_LABEL = "snapshots of retape.torch"
# Taken here: while something is recorded a program's tensors are watched that it hands
# to NumPy, and copies of snapshots are none of these.
_as_array = torch.Tensor.numpy


class Away:
    """Stands for a storage that is in a store."""

    __slots__ = ("device", "nbytes", "place")

    def __init__(self, key: int, nbytes: int, device: torch.device, tier: str) -> None:
        self.place = Place(key, key, tier)
        self.nbytes = nbytes
        self.device = device


class Vault:
    """The store of one run. A durable store is opened, and left empty at the end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys = count()
        self._open = False
        self._copies = HostCopies()
        self._leaving: deque[tuple[Away, torch.Tensor, Event]] = deque()
        self.as_arrays = not isinstance(store, MemoryStore)
        self._reads_ahead = store.reads_ahead

    def put(self, storage: Storage, tier: str) -> Away:
        """Write the bytes of a storage. Raises `StoreError` if that cannot be."""
        if not self._open:
            if is_durable(self._store):
                self._store.open(_LABEL)
            self._open = True
        away = Away(next(self._keys), storage.nbytes(), storage.device, tier)
        with below_autograd():
            content, event = self._copies.to_host(storage)
        if event is None or not self.as_arrays:
            # In memory, what reads it comes later in the same stream.
            self._write(away, content)
        else:
            self._leaving.append((away, content, event))
            self._write_what_is_there()
        return away

    def get(self, away: Away) -> Storage:
        """A new storage with the bytes that were put away.

        Raises:
            SnapshotError: If the store has them no more.
        """
        while any(each is away for each, _, _ in self._leaving):
            self._write_oldest()
        try:
            value = self._store.get(away.place)
        except SnapshotError as error:
            # What a store advises is for runs that can be resumed.
            what = str(error).partition(". ")[0]
            self.leave()  # PyTorch holds the graph until another backward has run
            raise SnapshotError(
                f"{what}. It was put away by `recompute(store=)`, and this backward "
                "cannot go on without it: run the forward once more."
            ) from None
        with below_autograd():
            content = torch.from_numpy(value) if self.as_arrays else value
            return self._copies.to_device(content, away.device)

    def read_ahead(self, away: Away) -> None:
        """Begin to read what `get` will be asked for, if the store can."""
        if self._reads_ahead and not self._leaving:
            self._store.prefetch(away.place)

    def drop(self, away: Away) -> None:
        """Free what was put away; with the last of it the store is left."""
        for entry in self._leaving:
            if entry[0] is away:
                self._leaving.remove(entry)
                return
        if self._open:
            self._store.drop(away.place)

    def next_snapshot(self) -> None:
        """Wait for the copies of all snapshots but the last."""
        self._copies.next_snapshot()

    def settle(self) -> None:
        """Wait until what was put away takes no memory of the device."""
        while self._leaving:
            self._write_oldest()
        self._copies.settle()

    def leave(self) -> None:
        """The run is over."""
        self._leaving.clear()
        self._copies.settle()
        if self._open and is_durable(self._store):
            self._store.clear()
            self._store.close()
        self._open = False

    def _write_what_is_there(self) -> None:
        while self._leaving and self._leaving[0][2].query():
            self._write_oldest()

    def _write_oldest(self) -> None:
        away, content, event = self._leaving.popleft()
        event.synchronize()
        self._write(away, content)

    def _write(self, away: Away, content: torch.Tensor) -> None:
        value = _as_array(content) if self.as_arrays else content
        self._store.put(away.place, value, away.nbytes)


class LazyStorages(dict[int, Any]):
    """Storages by slot, some of which are in a vault and read back when asked for."""

    def __init__(self, vault: Vault, run: Run) -> None:
        super().__init__()
        self._vault = vault
        self._owner, self._counter = run.trace.owner, run.trace.counter

    def __getitem__(self, slot: int) -> Storage:
        return self._there(slot, super().__getitem__(slot))

    def get(self, slot: int, default: Any = None) -> Any:
        """The storage of a slot, read back if need be."""
        return self._there(slot, super().get(slot, default))

    def items(self) -> Any:
        """Slots whose storages are in memory."""
        return [(k, s) for k, s in super().items() if not isinstance(s, Away)]

    def values(self) -> Any:
        """Storages that are in memory."""
        return [storage for _, storage in self.items()]

    def __delitem__(self, slot: int) -> None:
        self._forget(super().pop(slot))

    def __setitem__(self, slot: int, storage: Storage) -> None:
        self._forget(super().get(slot))
        super().__setitem__(slot, storage)

    def clear(self) -> None:
        """Forget everything; the run is over."""
        for away in super().values():
            self._forget(away)
        super().clear()
        self._vault.leave()

    def settle(self) -> None:
        """Wait until what was put away takes no memory of the device."""
        self._vault.settle()

    def read_ahead(self, slots: Iterable[int]) -> None:
        """Begin to read slots that are asked for soon."""
        for slot in slots:
            storage = super().get(slot)
            if isinstance(storage, Away):
                self._vault.read_ahead(storage)

    def put_away(self, slots: Iterable[int], tier: str = "memory") -> None:
        """Move storages that nobody else holds into the vault."""
        is_first = True
        for slot in slots:
            storage = super().get(slot)
            if isinstance(storage, Storage) and storage_refcount(storage) == 1:
                if is_first:
                    self._vault.next_snapshot()
                    is_first = False
                super().__setitem__(slot, self._vault.put(storage, tier))
            del storage

    def _there(self, slot: int, storage: Any) -> Any:
        if not isinstance(storage, Away):
            return storage
        back = self._vault.get(storage)
        setattr(back, TAG, Buffer(self._owner, slot, back.nbytes(), self._counter))
        return back

    def _forget(self, storage: Any) -> None:
        if isinstance(storage, Away):
            self._vault.drop(storage)


def keep_in(store: Store, run: Run) -> None:
    """From now on what a run puts away goes into a store."""
    run.trace.held.storages = run.trace.held.elsewhere = LazyStorages(Vault(store), run)


def as_store(store: "AnyStore") -> Store:
    """A store, also from the word "cpu" and from a folder."""
    found = MemoryStore[Any]() if store == "cpu" else store_of(store)
    assert found is not None, "asked only of what was passed"
    return found
