"""Stores: where snapshots are kept, with no idea of frameworks."""

from ._base import SnapshotStore as SnapshotStore
from ._codec import copy_tree as copy_tree
from ._codec import fingerprint as fingerprint
from ._codec import freeze as freeze
from ._codec import tree_nbytes as tree_nbytes
from ._disk import DiskStore as DiskStore
from ._durable import DurableStore as DurableStore
from ._durable import Record as Record
from ._memory import MemoryStore as MemoryStore
from ._tiered import TieredStore as TieredStore
