"""The kinds of plans there are: one row each.

The rows feed the command (`_parse`), the hints of error texts, the table on the page
"Plans" and the tests. A new kind of plan is a module with its class and its function, a
row here, its name in `retape/__init__.py`, a test and a section on the page.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from retape.plan._base import Plan
from retape.plan._chain import chain
from retape.plan._constructors import (
    fixed_space,
    fixed_time,
    logarithmic,
    segments,
    within,
)
from retape.plan._tiers import tiers


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plan.

    Attributes:
        make: The public function that makes such plans.
        call: A call of it, in the symbols of the page.
        fixed: What the user fixes.
        follows: What follows from the number of steps.
        text: One such plan in the grammar of `_parse`.
    """

    make: Callable[..., Plan]
    call: str
    fixed: str
    follows: str
    text: str

    @property
    def name(self) -> str:
        """The kind in the grammar of `_parse`."""
        return self.make.__name__.replace("_", "-")

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options that its function takes, by name."""
        taken = inspect.signature(self.make).parameters
        return {n: p for n, p in taken.items() if p.kind is not p.VAR_KEYWORD}

    @property
    def needed(self) -> list[str]:
        """The options without a default."""
        return [n for n, p in self.options.items() if p.default is p.empty]


KINDS = (
    Kind(
        fixed_space,
        "retape.fixed_space(snapshots=d)",
        "d, alpha",
        "t grows like n^(1/d)",
        "fixed-space:snapshots=3",
    ),
    Kind(
        fixed_time,
        "retape.fixed_time(sweeps=t)",
        "t, alpha",
        "d grows like n^(1/t)",
        "fixed-time:sweeps=2",
    ),
    Kind(
        logarithmic,
        "retape.logarithmic()",
        "d = t, alpha",
        "both grow like log n",
        "logarithmic",
    ),
    Kind(
        segments,
        "retape.segments()",
        "t = 1",
        "d and alpha grow like sqrt(n)",
        "segments",
    ),
    Kind(
        within,
        'retape.within("512 MiB")',
        "bytes",
        "alpha, d, t with the fewest advances",
        "within:budget=1 MB",
    ),
    Kind(
        fixed_space,
        'retape.fixed_space(snapshots=d, store={"state", "tape"})',
        "slots, for states or tapes",
        "a mixed schedule",
        "fixed-space:snapshots=3,store=state+tape",
    ),
    Kind(
        tiers,
        "retape.tiers(memory=m, disk=k)",
        "slots or bytes, costs",
        "the cheapest schedule",
        "tiers:memory=2,disk=4",
    ),
    Kind(
        tiers,
        "retape.tiers(levels=(retape.Tier(...), ...))",
        "slots or bytes of any number of tiers, costs",
        "the cheapest schedule over them",
        "tiers:levels=device/2+host/4/1/1+disk/9/5/5",
    ),
    Kind(
        chain,
        "retape.chain(forward=, states=, tapes=, budget=)",
        "steps that differ, bytes",
        "the cheapest persistent schedule",
        "chain:forward=1+2+1+2,states=2+1+2+1,tapes=3+3+3+3,budget=8",
    ),
    Kind(
        chain,
        'retape.chain(..., store={"state"})',
        "the same, and no tapes in slots",
        "the cheapest without them",
        "chain:forward=1+2+1+2,states=2+1+2+1,tapes=3+3+3+3,budget=8,store=state",
    ),
)
"""All kinds, in the order of the page."""


def by_name() -> dict[str, Kind]:
    """The kinds by their names in the grammar; a function that makes two is one."""
    found: dict[str, Kind] = {}
    for kind in KINDS:
        found.setdefault(kind.name, kind)
    return found


def homes_of(option: str) -> str:
    """The functions that take an option, as a text; empty if none does.

    Examples:
        >>> homes_of("sweeps"), homes_of("split")
        ('fixed_time', 'fixed_space, fixed_time, logarithmic or within')
        >>> homes_of("colour")
        ''
    """
    homes = list(dict.fromkeys(_with_option(option)))
    return " or ".join(filter(None, [", ".join(homes[:-1]), *homes[-1:]]))


def _with_option(option: str) -> Iterator[str]:
    for kind in KINDS:
        if option in kind.options:
            yield kind.make.__name__
