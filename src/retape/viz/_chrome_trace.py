"""A schedule or a measured run in the format of Chrome's and Perfetto's trace viewers.

Open the file at <https://ui.perfetto.dev> or `chrome://tracing`. A schedule's clock is
work: one step is one microsecond. A measured run has its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from retape.driver._memory_trace import MemoryTrace
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.schedule._in_use import in_use
from retape.viz._timeline import HasMemory, trace_of

Event = dict[str, Any]
_PROCESS = {"pid": 1, "tid": 1}
_SLOTS = 2
"""The thread on whose rows snapshots are shown."""


def chrome_trace(what: Iterable[Action] | HasMemory | MemoryTrace) -> dict[str, Any]:
    """A trace for Perfetto or Chrome, of a schedule or of a run that was measured.

    Args:
        what: Actions, or a report of a run that was measured.

    Returns:
        An object for `json.dump`.

    Raises:
        PlanError: If a report holds nothing of its run over time.

    Examples:
        >>> from retape.schedule import Schedule
        >>> trace = chrome_trace(Schedule(2, snapshots=1))
        >>> for event in trace["traceEvents"]:
        ...     if event["ph"] == "X":
        ...         print(event["name"], event["ts"], event["dur"])
        advance 0-1 0 1
        reverse 1-2 1 2
        reverse 0-1 3 2
    """
    if isinstance(what, Iterable):
        actions: Iterable[Action] = cast("Iterable[Action]", what)
        events, unit = _of_actions(actions), "1 us is one step"
    else:
        events, unit = _of_run(trace_of(what)), "measured seconds"
    names = [
        {"ph": "M", "name": "process_name", "args": {"name": f"Retape, {unit}"}}
        | _PROCESS,
        {"ph": "M", "name": "thread_name", "args": {"name": "steps"}} | _PROCESS,
    ]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def _of_actions(actions: Iterable[Action]) -> list[Event]:
    events: list[Event] = []
    clock = 0

    def span(name: str, length: int) -> None:
        nonlocal clock
        events.append({"ph": "X", "name": name, "ts": clock, "dur": length} | _PROCESS)
        clock += length

    def count(held: Mapping[str, int]) -> None:
        args = {"memory": 0, "disk": 0} | dict(held)
        counter = {"ph": "C", "name": "slots in use", "ts": clock, "args": args}
        events.append(counter | _PROCESS)

    def slot(begin: bool, number: int, tier: str, step: int) -> None:
        where = {"pid": 1, "tid": _SLOTS, "id": f"{tier} {number}", "cat": "snapshots"}
        name = f"snapshot of step {step} ({tier} {number})"
        events.append({"ph": "b" if begin else "e", "name": name, "ts": clock} | where)

    for action, _, held in in_use(actions):
        match action:
            case Advance(start, stop):
                span(f"advance {start}-{stop}", stop - start)
            case Tape(start, stop, number, tier):
                span(f"tape {start}-{stop}", stop - start)
                count(held)
                slot(True, number, tier, start)
            case Reverse(start, stop):
                # Taped, and swept back.
                span(f"reverse {start}-{stop}", 2 * (stop - start))
            case Sweep(start, stop):
                span(f"sweep {start}-{stop}", stop - start)
            case Store(step, number, tier):
                count(held)
                slot(True, number, tier, step)
            case Drop(step, number, tier):
                count(held)
                slot(False, number, tier, step)
            case Restore(step, number, tier):
                mark = {"ph": "i", "s": "t", "name": f"restore {step}", "ts": clock}
                events.append(
                    mark | {"args": {"slot": number, "tier": tier}} | _PROCESS
                )
    return events


def _of_run(trace: MemoryTrace) -> list[Event]:
    events: list[Event] = []
    before, reversed_before = 0.0, 0
    for sample in trace.measured:
        clock = round(sample.seconds * 1e6, 3)
        swept = sample.reversed > reversed_before
        span = {
            "ph": "X",
            "name": "reverse" if swept else "advance",
            "ts": before,
            "dur": clock - before,
            "args": {"work": sample.work, "reversed": sample.reversed},
        }
        memory = {"bytes": sample.nbytes}
        counter = {"ph": "C", "name": trace.source, "ts": clock, "args": memory}
        events += [span | _PROCESS, counter | _PROCESS]
        before, reversed_before = clock, sample.reversed
    return events
