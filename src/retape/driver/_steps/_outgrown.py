"""States and tapes larger than those that a budget was shared out by."""

from dataclasses import dataclass, field

from retape._bytes import format_bytes
from retape._warn import warn

_MORE = 1.25
"""Times as large as the first before that is told: what a step makes inside it, which
no plan counts, is as much (`docs/driver.md`)."""


@dataclass(slots=True)
class FirstSizes:
    """What a plan in bytes was made with: one state and one tape.

    Attributes:
        plan: The plan, as text.
        sizes: The bytes that were measured, of the first state and of its tape.
    """

    plan: str
    sizes: dict[str, int]
    _told: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def compare(self, kind: str, k: int, nbytes: int) -> None:
        """Warn of one that is larger, again when it is twice as large as the last."""
        ratio = nbytes / max(1, self.sizes[kind])
        if ratio <= self._told.get(kind, _MORE):
            return
        self._told[kind] = 2 * ratio
        warn(
            f"the {kind} of step {k} takes {format_bytes(nbytes)}, {ratio:.3g} times "
            f"that of step 0, with which `plan={self.plan}` was made: its bytes are "
            f"not kept. Pass them divided by {ratio:.3g}, or let the first step be one "
            "of the largest."
        )
