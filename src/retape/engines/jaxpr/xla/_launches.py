"""What a GPU is told to do by a compiled program, read in its text.

A kernel is what one instruction of the scheduled program launches. A loop whose number
of turns XLA knows is enqueued whole; at any other, and at a conditional, the host waits
for a number from the device at each turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z][a-z\-]*)\((.*)")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
)
"""Instructions for which nothing is launched."""


class Launches(NamedTuple):
    """What a run takes of a GPU, and of the host that steers it.

    Attributes:
        kernels: Kernels and copies that are launched. A loop of a number of turns that
            XLA does not know is counted with one turn, if nobody says how many.
        waits: Loops of that kind, and conditionals; where their turns are told, how
            often the host waits.
    """

    kernels: int
    waits: int


_Call = tuple[list[str], int | None]
"""Computations of which one is called, and how often; `None`: until a test fails."""


@dataclass(slots=True)
class _Part:
    """A computation of the text: its own launches, and what it calls, how often."""

    own: int = 0
    waits: int = 0
    calls: list[_Call] = field(default_factory=list["_Call"])


def launches(text: str, turns: Sequence[float] = ()) -> Launches:
    """Read the text of a compiled program.

    Args:
        text: As `jax.stages.Compiled.as_text` gives it.
        turns: For each loop of an unknown number of turns, the outer before the inner,
            how many they are, on the average. By default one each, which is not tested
            again.

    Examples:
        Five turns of a copy and the copy at the end; a loop whose number of turns is
        not in the text is counted with one, its test is a kernel, and is waited for.

        >>> text = '''
        ... %turn (s: (s32[], f32[4])) -> (s32[], f32[4]) {
        ...   %s = (s32[], f32[4]) parameter(0)
        ...   %a = f32[4] copy(%s)
        ...   ROOT %t = (s32[], f32[4]) tuple(%a, %a)
        ... }
        ... ENTRY %main (x: f32[4]) -> f32[4] {
        ...   %x = f32[4] parameter(0)
        ...   %w = f32[4] while(%x), body=%turn, "known_trip_count":{"n":"5"}
        ...   ROOT %r = f32[4] copy(%w)
        ... }'''
        >>> launches(text)
        Launches(kernels=6, waits=0)
        >>> unknown = text.replace(', "known_trip_count":{"n":"5"}', "")
        >>> launches(unknown)
        Launches(kernels=3, waits=1)
        >>> launches(unknown, [5])              # five turns, six tests
        Launches(kernels=12, waits=6)
    """
    parts, entry = _computations(text)
    kernels, waits, _ = _total(parts, entry, iter(turns))
    return Launches(round(kernels), round(waits))


def tested_loops(text: str) -> int:
    """How many loops of an unknown number of turns a compiled program has."""
    return _total(*_computations(text), iter(()))[2]


def _computations(text: str) -> tuple[dict[str, _Part], str]:
    parts: dict[str, _Part] = {}
    name = entry = ""
    for line in text.splitlines():
        if line[:1] in ("%", "E") and line.endswith("{"):
            name = line.removeprefix("ENTRY ").split()[0].removeprefix("%")
            parts[name] = _Part()
            entry = name if line.startswith("ENTRY") else entry
        elif (found := _INSTRUCTION.match(line)) and name:
            _read(parts[name], *found.groups())
    return parts, entry


def _read(part: _Part, operation: str, rest: str) -> None:
    if operation == "while":
        known = _TRIP_COUNT.search(rest)
        often = int(known[1]) if known else None
        part.calls.append((_computations_at(rest, "body"), often))
    elif operation == "conditional":
        part.waits += 1
        listed = _computations_at(rest, "branch_computations")
        both = _computations_at(rest, "true_computation") + _computations_at(
            rest, "false_computation"
        )
        part.calls.append((listed or both, 1))
    elif operation in ("call", "async-start"):
        part.calls.append(
            (_computations_at(rest, "to_apply") or _computations_at(rest, "calls"), 1)
        )
    elif operation not in _FREE and not operation.endswith("-done"):
        part.own += 1


def _computations_at(rest: str, what: str) -> list[str]:
    """The computations that an instruction names as its body, its branches, ..."""
    found = re.search(rf"{what}=(\{{[^}}]*\}}|%?[\w.\-]+)", rest)
    return re.findall(r"[\w.\-]+", found[1]) if found else []


def _total(
    parts: dict[str, _Part], name: str, told: Iterator[float]
) -> tuple[float, float, int]:
    part = parts[name]
    kernels, waits, unknown = float(part.own), float(part.waits), 0
    for names, often in part.calls:
        turns = next(told, None) if often is None else None
        inner = [_total(parts, each, told) for each in names if each in parts]
        # Each test is a kernel, too.
        tests = 0.0 if often is not None else 1.0 if turns is None else turns + 1
        times = 1.0 if turns is None else turns
        times = times if often is None else float(often)
        # Of branches the dearest.
        kernels += tests + times * max((k for k, _, _ in inner), default=0.0)
        waits += tests + times * max((w for _, w, _ in inner), default=0.0)
        unknown += (often is None) + sum(u for _, _, u in inner)
    return kernels, waits, unknown
