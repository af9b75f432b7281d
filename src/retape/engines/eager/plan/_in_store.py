"""Units of a run with a store: states and tapes in it take no memory while they wait.

A state that is run from is read back, so it takes memory while its unit is run. What is
put away is copied twice, on its way out and back. A copy has a price in what operators
cost, and none is timed: a plan is the same in each process.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.analysis._unit_sizes import Unit
from retape.engines.eager.trace._schedule import Descent

# For each byte and way: it is read and written, as by an operator that does no more.
# How fast a disk or a bus is nobody knows beforehand, and a plan looks at no clock.
_COPIED = 2


class InStore(NamedTuple):
    """The input of the dynamic programme.

    Attributes:
        units: Their states are there while they run, and not while they wait.
        widths: What waiting states take: nothing.
        copies: For each unit, the cost of a copy of the state before it.
        tape_copies: For each unit, that of putting its tape away and reading it.
    """

    units: Sequence[Unit]
    widths: Sequence[Sequence[int]]
    copies: Sequence[float]
    tape_copies: Sequence[float]


def units_in_store(measured: Measured, price: int) -> InStore:
    """The units of a run, if every state is put away as soon as it is complete."""
    states = [[measured.nbytes[slot] for slot in state] for state in measured.states]
    units = [_with_state(*each) for each in zip(measured.units, states, strict=False)]
    return InStore(
        units,
        [[0] * len(states)] * len(states),
        [price * sum(state) for state in states[:-1]],
        [2 * price * unit.more_bytes for unit in measured.units],
    )


def copy_cost(measured: Measured, descents: Sequence[Descent], price: int) -> int:
    """About what the copies of a plan cost, each state read once."""
    nbytes, states, own = measured.nbytes, measured.states, descents[0]
    stored = [
        slot for each in descents for unit in each.stores for slot in states[unit]
    ]
    away = [slot for unit in own.away for slot in measured.tapes[unit]]
    return 2 * price * sum(nbytes[slot] for slot in (*stored, *away))


def _with_state(unit: Unit, state: Sequence[int]) -> Unit:
    """A unit in which the state before it takes room whenever something runs.

    Of what comes and goes there is a second copy while it is on its way.
    """
    nbytes = sum(state) + max(state, default=0)
    return unit._replace(
        hold_bytes=0,
        advance_peak=unit.advance_peak + nbytes,
        tape_peak=unit.tape_peak + nbytes,
        reverse_peak=unit.reverse_peak + nbytes,
    )


def price_of(store: Any) -> int:
    """What a byte costs on its way into a store or back; 0 without a store."""
    return 0 if store is None else _COPIED


def is_unlimited(store: Any) -> bool:
    """Whether a store takes all that a plan may put into it.

    A tiered store passes on to its last part what it has no room for before.
    """
    inner = getattr(store, "inner", None) or getattr(store, "disk", None)
    if inner is not None:
        return is_unlimited(inner)
    limits = (getattr(store, name, None) for name in ("capacity", "capacity_bytes"))
    return all(each is None for each in limits)
