"""Stores: where snapshots are kept, with no idea of frameworks."""

from retape.storage._asynchronous import AsyncStore as AsyncStore
from retape.storage._base import SnapshotStore as SnapshotStore
from retape.storage._codecs._codec import Codec as Codec
from retape.storage._codecs._codec import bounded as bounded
from retape.storage._codecs._codec_store import CodecStore as CodecStore
from retape.storage._codecs._compare_codecs import CodecTrial as CodecTrial
from retape.storage._codecs._compare_codecs import compare_codecs as compare_codecs
from retape.storage._disk import DiskStore as DiskStore
from retape.storage._measure import Speed as Speed
from retape.storage._measure import measure as measure
from retape.storage._memory import MemoryStore as MemoryStore
from retape.storage._ranks import RankStore as RankStore
from retape.storage._record import Record as Record
from retape.storage._remote import RemoteStore as RemoteStore
from retape.storage._tiered import TieredStore as TieredStore
from retape.storage._trees._arithmetic import add_trees as add_trees
from retape.storage._trees._kinds import State as State
from retape.storage._trees._kinds import register_state as register_state
from retape.storage._trees._serialize import fingerprint as fingerprint
from retape.storage._trees._tree import copy_tree as copy_tree
from retape.storage._trees._tree import read_only as read_only
from retape.storage._trees._tree import tree_nbytes as tree_nbytes
from retape.storage._wrapper import StoreWrapper as StoreWrapper
from retape.storage._zarr import ZarrStore as ZarrStore
