"""Stores: where snapshots are kept, with no idea of frameworks."""

from retape.storage._asynchronous import AsyncStore as AsyncStore
from retape.storage._base import AnotherRun as AnotherRun
from retape.storage._base import Place as Place
from retape.storage._base import Record as Record
from retape.storage._base import SnapshotStore as SnapshotStore
from retape.storage._base import StoreWrapper as StoreWrapper
from retape.storage._codecs._codec import bounded as bounded
from retape.storage._codecs._codec_store import CodecStore as CodecStore
from retape.storage._measure import measure as measure
from retape.storage._remote import RemoteStore as RemoteStore
from retape.storage._sharded._ranks import RankStore as RankStore
from retape.storage._trees._serialize import fingerprint as fingerprint
from retape.storage._trees._tree import copy_tree as copy_tree
from retape.storage._trees._tree import tree_nbytes as tree_nbytes
from retape.storage._zarr import ZarrStore as ZarrStore
