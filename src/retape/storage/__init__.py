"""Stores: where snapshots are kept, with no idea of frameworks."""

from ._base import SnapshotStore as SnapshotStore
from ._memory import MemoryStore as MemoryStore
