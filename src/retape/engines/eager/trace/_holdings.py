"""Reference counts of values, by the records that hold them.

A slot is one version of one storage. A held slot can be read again without computing
it. Several holders may hold the same slot: the tail of the run, snapshots, the stage
that is being reversed. The memory is given back when the last one lets go.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Protocol

from torch import UntypedStorage as Storage

from retape.engines.eager.trace._geometry import Geometry

TAG = "_retape"


class Counter:
    """Bytes alive in the storages of one trace."""

    __slots__ = ("live", "peak")

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0


class Buffer:
    """The trace's note on a storage, attached to the storage itself.

    It dies with the storage, and that is how the bytes are counted: no registry, no
    weak references. `version` is what PyTorch's counter may show after the writes that
    the trace has seen: a higher one means that somebody else has written.
    """

    __slots__ = (
        "counter", "nbytes", "older", "owner", "slot", "uninitialised", "version",
    )  # fmt: skip

    def __init__(self, owner: Any, slot: int, nbytes: int, counter: Counter) -> None:
        self.owner = owner
        self.slot = slot
        self.nbytes = nbytes
        self.counter = counter
        self.uninitialised = False
        self.older: tuple[int, ...] = ()
        self.version = 0
        counter.live += nbytes

    def __del__(self) -> None:
        self.counter.live -= self.nbytes


class Elsewhere(Protocol):
    """Storages by slot, some of which are outside of the device's memory.

    They take no bytes there, and are read back when they are asked for.
    """

    def put_away(self, slots: Iterable[int], tier: str = "memory") -> None:
        """Move storages out that nobody else holds."""
        ...

    def settle(self) -> None:
        """Wait until what was put away takes no memory of the device."""
        ...

    def read_ahead(self, slots: Iterable[int]) -> None:
        """Begin to read slots that are asked for soon."""
        ...


class Holdings:
    """Slots with a strong reference to their storage, counted by holder.

    Attributes:
        elsewhere: The storages, if the run has a store for some of them.
    """

    __slots__ = ("counts", "elsewhere", "storages")

    def __init__(self) -> None:
        self.storages: dict[int, Storage] = {}
        self.counts: dict[int, int] = {}
        self.elsewhere: Elsewhere | None = None

    def hold(self, slot: int, storage: Storage) -> None:
        """Add a holder of `slot`; the first storage given for it stays."""
        counts = self.counts
        if slot in counts:
            counts[slot] += 1
        else:
            counts[slot] = 1
            self.storages[slot] = storage

    def again(self, slots: Iterable[int]) -> None:
        """Add a holder of slots that are held already."""
        for slot in slots:
            self.counts[slot] += 1

    def release(self, slot: int) -> None:
        """Take one holder of `slot` away."""
        left = self.counts[slot] - 1
        if left:
            self.counts[slot] = left
        else:
            del self.counts[slot], self.storages[slot]

    def settle(self) -> None:
        """Wait for storages on their way out of the device: they still take memory."""
        if self.elsewhere is not None:
            self.elsewhere.settle()

    def shrink(self) -> None:
        """Give back the room of what was let go: tables do not do so by themselves."""
        self.counts = dict(self.counts)
        if self.elsewhere is None:
            self.storages = dict(self.storages)

    def clear(self) -> None:
        """Let go of everything."""
        self.counts.clear()
        self.storages.clear()


class Tail:
    """Slots that autograd saved and that are still held, oldest first.

    Attributes:
        steps: The step at which each was first saved.
        windows: The geometries under which it was saved.
        partial: Storages since overwritten, but outside these geometries: good enough
            for autograd, not for a replay.
        nbytes: The sum of their sizes.
    """

    __slots__ = ("nbytes", "partial", "steps", "windows")

    def __init__(self) -> None:
        # Ordered: it is emptied from the front, where a `dict` is slow.
        self.steps: OrderedDict[int, int] = OrderedDict()
        self.windows: dict[int, list[Geometry]] = {}
        self.partial: dict[int, Storage] = {}
        self.nbytes = 0

    def shrink(self) -> None:
        """Give back the room of what was let go."""
        self.steps, self.windows = OrderedDict(self.steps), dict(self.windows)


class Loaded:
    """The compiled module, once there is one; `using` says whether it is to be used."""

    module: Any = None
    using = False


def native_for(trace: Any) -> Any:
    """The compiled module if it is to be used and can read what a trace holds.

    It looks into dictionaries directly; snapshots that are away look in at each access.
    """
    if Loaded.using and trace.held.elsewhere is None:
        return Loaded.module
    return None
