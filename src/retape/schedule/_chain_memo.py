"""The dynamic programme of unequal chains in plain Python, where NumPy is missing.

V(a, b, room) of `_chain` for the rooms that come up, and no others, by recursion.
"""

from __future__ import annotations

from math import inf

from retape._errors import PlanError
from retape.schedule._chain_table import ChainCosts, ChainTable

LARGEST = 5_000_000
"""The most sums that are compared: some seconds."""

DEEPEST = 300
"""The most steps: each takes two of Python's frames."""


class MemoTable(ChainTable):
    """V for the stretches of a small chain that are asked for.

    Raises:
        PlanError: When asked, if the chain is too large.
    """

    def __init__(self, chain: ChainCosts) -> None:
        super().__init__(chain)
        self._values: dict[tuple[int, int, int], float] = {}
        self._sums = 0

    def value(self, a: int, b: int, room: int) -> float:
        """V(a, b, room)."""
        if self.tape[b] - self.tape[a] <= room:
            return 0.0
        if self.tapes[a] > room:
            return inf
        key = a, b, room
        if key not in self._values:
            self._values[key] = self._least(a, b, room)
        return self._values[key]

    def _least(self, a: int, b: int, room: int) -> float:
        self._sums += b - a
        if self._sums > LARGEST or self.n > DEEPEST:
            raise PlanError(
                f"a chain of {self.n} steps with so many different sums of sizes is "
                "too large for the dynamic programme in plain Python. Run `pip install "
                "numpy`, or pass fewer `units`, such as `units=20`."
            )
        least, beside = inf, room - self.states[a]
        if self.keep_tapes:
            least = self.value(a + 1, b, room - self.tapes[a])
        for k in range(a + 1, b):
            cost = self.value(a, k, room) + (self.cost[k] - self.cost[a])
            if cost < least:
                least = min(least, cost + self.value(k, b, beside))
        return least
