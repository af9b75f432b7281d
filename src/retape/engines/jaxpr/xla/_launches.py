"""What a GPU is told to do by a compiled program, read in its text.

A kernel is what one instruction of the scheduled program launches. A loop whose number
of turns XLA knows is enqueued whole; at any other, and at a conditional, the host waits
for a number from the device at each turn.
"""

from __future__ import annotations

import re
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
            XLA does not know is counted with one turn.
        waits: Loops of that kind, and conditionals.
    """

    kernels: int
    waits: int


_Call = tuple[list[str], int]
"""Computations of which one is called, and how often."""


@dataclass(slots=True)
class _Part:
    """A computation of the text: its own launches, and what it calls, how often."""

    own: int = 0
    waits: int = 0
    calls: list[tuple[list[str], int]] = field(
        default_factory=list[tuple[list[str], int]]
    )


def launches(text: str) -> Launches:
    """Read the text of a compiled program.

    Args:
        text: As `jax.stages.Compiled.as_text` gives it.

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
        >>> launches(text.replace(', "known_trip_count":{"n":"5"}', ""))
        Launches(kernels=3, waits=1)
    """
    parts, entry = _computations(text)
    return _total(parts, entry)


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
        part.waits += known is None
        part.own += known is None  # the test is a kernel of its own
        part.calls.append(
            (_computations_at(rest, "body"), int(known[1]) if known else 1)
        )
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


def _total(parts: dict[str, _Part], name: str) -> Launches:
    part = parts[name]
    kernels, waits = part.own, part.waits
    for names, turns in part.calls:
        inner = [_total(parts, each) for each in names if each in parts]
        if inner:  # of branches the dearest
            kernels += turns * max(each.kernels for each in inner)
            waits += turns * max(each.waits for each in inner)
    return Launches(kernels, waits)
