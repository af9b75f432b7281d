"""The seams of plans that tests know: plans as text, and one of each for the page.

The page of the architecture tells who adds a kind of plan to begin with its row here.
"""

# ruff: noqa: E501 - a line is a row

from typing import NamedTuple

from retape.plan._parse import MAKERS as MAKERS
from retape.plan._parse import parse_plan as parse_plan


class Sample(NamedTuple):
    """A row of the page, and one such plan as text."""

    call: str
    fixed: str
    follows: str
    text: str

    @property
    def name(self) -> str:
        """The public function that makes such plans."""
        return self.call.partition("(")[0].removeprefix("retape.")


ROWS = """
retape.fixed_space(snapshots=d)                          | d, alpha                                     | t grows like n^(1/d)                 | fixed_space(snapshots=3)
retape.fixed_time(sweeps=t)                              | t, alpha                                     | d grows like n^(1/t)                 | fixed_time(sweeps=2)
retape.logarithmic()                                     | d = t, alpha                                 | both grow like log n                 | logarithmic()
retape.segments()                                        | t = 1                                        | d and alpha grow like sqrt(n)        | segments()
retape.within("512 MiB")                                 | bytes                                        | alpha, d, t with the fewest advances | within('1 MB')
retape.fixed_space(snapshots=d, store={"state", "tape"}) | slots, for states or tapes                   | a mixed schedule                     | fixed_space(snapshots=3, store={'state', 'tape'})
retape.tiers(memory=m, disk=k)                           | slots or bytes, costs                        | the cheapest schedule                | tiers(memory=2, disk=4)
retape.tiers(levels=(retape.Tier(...), ...))             | slots or bytes of any number of tiers, costs | the cheapest schedule over them      | tiers(levels=[Tier('device', 2), Tier('host', 4, 1, 1), Tier('disk', 9, 5, 5)])
retape.chain(forward=, states=, tapes=, budget=)         | steps that differ, bytes                     | the cheapest persistent schedule     | chain(forward=[1, 2, 1, 2], states=[2, 1, 2, 1], tapes=[3, 3, 3, 3], budget=8)
retape.chain(..., store={"state"})                       | the same, and no tapes in slots              | the cheapest without them            | chain(forward=[1, 2, 1, 2], states=[2, 1, 2, 1], tapes=[3, 3, 3, 3], budget=8, store={'state'})
"""
SAMPLES = [
    Sample(*(cell.strip() for cell in row.split(" | ")))
    for row in ROWS.strip().splitlines()
]
"""All plans, in the order of the page."""
