"""The kinds of plans there are, by their names in the grammar of `_parse`.

A new kind of plan is a module with its class and its function, its place here, its name
in `retape/__init__.py`, a test and a section on the page.
"""

import inspect
from collections.abc import Callable
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
    """

    make: Callable[..., Plan]

    @property
    def name(self) -> str:
        """The kind in the grammar of `_parse`."""
        return self.make.__name__.replace("_", "-")

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options that its function takes, by name."""
        return dict(inspect.signature(self.make).parameters)

    @property
    def needed(self) -> list[str]:
        """The options without a default."""
        return [n for n, p in self.options.items() if p.default is p.empty]


_ALL = (fixed_space, fixed_time, logarithmic, segments, within, tiers, chain)

KINDS = {kind.name: kind for kind in map(Kind, _ALL)}
"""All kinds, in the order of the page."""
