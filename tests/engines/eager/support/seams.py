"""The private parts of the engine that many tests need; nothing else imports them.

`forget`: a test follows no plan that an earlier one has left. There is no public way,
since a process has no reason to forget. `cost_again`: what plans compare is the cost of
what is run again, and a report counts operators. `TellingAllocator`: the allocator of
a CPU does not tell what was given back to it, as that of a GPU does.
"""

from itertools import count
from typing import Any

import pytest

from retape.engines.eager.plan._book import forget_plans


def forget() -> None:
    """All plans of this process."""
    forget_plans()


def cost_again(run: Any, found: Any) -> int:
    """The cost of all that a run has computed again, as the plans of an estimate do."""
    known: Any = found.known
    return run._tally.cost(known.measured.costs)


class TellingAllocator:
    """Stands in for an allocator that tells what was given back.

    Attributes:
        nbytes: What it says of each kernel, and of each backward.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.nbytes, turns, self._taken = 0, count(), dict[Any, Any]()
        module = "retape.engines.eager.record._measure_kernel"
        released = lambda device: self.nbytes * next(turns)  # noqa: E731
        patch.setattr(f"{module}._taken", self._taken)
        patch.setattr(f"{module}.tells_bytes", lambda device: True)
        patch.setattr(f"{module}.released_bytes", released)

    @property
    def tried(self) -> list[bool]:
        """For each operator that was measured, whether its backward was, too."""
        return [each.reverse is not None for each in self._taken.values()]

    def forget(self) -> None:
        """Nothing was measured."""
        self._taken.clear()
