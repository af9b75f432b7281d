"""A tier of a hierarchy: a place for snapshots, with what it holds and costs.

What a step costs is here, too: schedules over tiers weigh one against the other.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

from retape._arguments import integer_of, number_of
from retape._bytes import parse_bytes
from retape._errors import PlanError


@dataclass(frozen=True, slots=True, repr=False)
class Tier:
    """A place where snapshots may lie: a device, the host, a disk, a remote store.

    Args:
        name: Its name, which the actions of a schedule say: any word.
        snapshots: How many it holds, or bytes as a text such as "50 GB".
        write: What writing a snapshot costs, in the unit of the steps' costs.
        read: What reading one costs.

    Raises:
        PlanError: If one of them cannot be.

    Examples:
        >>> import retape
        >>> retape.Tier("disk", "50 GB", write=3, read=2.5)
        retape.Tier('disk', '50 GB', write=3.0, read=2.5)
    """

    name: str
    snapshots: int | str
    write: float = 0.0
    read: float = 0.0

    def __post_init__(self) -> None:
        # The characters that a plan's text has between a tier and the next.
        given: Any = self.name
        if not isinstance(given, str) or not given.strip() or set(given) & set("/+,="):
            raise PlanError(
                f"`name={self.name!r}` cannot be the name of a tier. Pass a word such "
                "as 'host', without '/', '+', ',' and '='."
            )
        held = self.snapshots
        count = integer_of(held)
        if isinstance(held, str):
            parse_bytes(held, "snapshots")
        elif count is None or count < 0:
            raise PlanError(
                f"`snapshots={held!r}` of the tier {self.name!r} is not valid: pass a "
                "number of snapshots, zero or more, or bytes as a text such as "
                '"50 MB".'
            )
        else:
            object.__setattr__(self, "snapshots", count)
        object.__setattr__(self, "write", cost_of("write", self.write))
        object.__setattr__(self, "read", cost_of("read", self.read))

    def __repr__(self) -> str:
        """The call that makes this tier."""
        more = "".join(
            f", {name}={cost!r}"
            for name, cost in (("write", self.write), ("read", self.read))
            if cost
        )
        return f"retape.Tier({self.name!r}, {self.snapshots!r}{more})"


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs of a step, in the unit in which a tier's transfers are told.

    Attributes:
        forward: Advancing one stage.
        tape: Running one stage with a tape.
        backward: Sweeping one stage back.

    Raises:
        PlanError: If one of them cannot be.

    Examples:
        >>> import retape
        >>> retape.StepCosts(forward=2)
        StepCosts(forward=2.0, tape=1.0, backward=1.0)
    """

    forward: float = 1.0
    tape: float = 1.0
    backward: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, cost_of(name, getattr(self, name)))


def cost_of(name: str, value: object) -> float:
    """A cost as a number.

    Raises:
        PlanError: If it is negative, infinite or no number.
    """
    cost = number_of(value)
    if not 0 <= cost < inf:
        raise PlanError(
            f"`{name}={value!r}` cannot be a cost. Pass a number that is not negative."
        )
    return cost
