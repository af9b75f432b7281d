"""The values that autograd saved last, held until bytes run out."""

from collections import OrderedDict

from torch import UntypedStorage as Storage

from retape.engines.eager.trace._geometry import Geometry


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
