"""A compiled region as an operator: what the trace runs, again if need be, as one step.

To the trace it is an operator like others: it is given tensors, makes storages and
overwrites some that it is given. What it makes beside the program's results is what its
compiled backward reads; that gets no cotangent and is no value of the program.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class RegionBytes(NamedTuple):
    """The bytes of a region for one set of shapes.

    Attributes:
        forward: The most that its forward holds at once, what it is given left out.
        workspace: Of these, what is beside all that it makes.
        reverse: What its backward takes beside gradients and what it reads.
    """

    forward: int
    workspace: int
    reverse: int


class RegionName(NamedTuple):
    """What stands in the place of an operator's schema."""

    name: str


class CompiledRegion:
    """One compiled graph.

    Attributes:
        kind: What the trace must know about it, as `OperatorTraits`.
        results: How many of its results are the program's; the others are saved.
        cost: What running it costs, in the unit of `step_cost`.
        bytes_for: Its bytes, by the arguments of a call.
    """

    namespace = "retape"

    def __init__(
        self,
        name: str,
        kind: Any,
        results: int,
        cost: int,
        run: Callable[[list[Any]], Any],
        bytes_for: Callable[[Sequence[Any]], RegionBytes],
    ) -> None:
        self.kind, self.results, self.cost = kind, results, cost
        self.bytes_for = bytes_for
        self._schema = RegionName(name)
        self._run = run

    def _op(self, *args: Any) -> list[Any]:
        """Run it; compiled code takes a list, and lets go of what is in it."""
        made = self._run(list(args))
        return list(made) if isinstance(made, tuple | list) else [made]

    __call__ = _op

    def __str__(self) -> str:
        return self._schema.name

    def name(self) -> str:
        """The name of an operator, as others have one."""
        return self._schema.name
