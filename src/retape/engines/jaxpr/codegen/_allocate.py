"""Allocate registers: a location for every variable that crosses between blocks.

- An *operand* is an input or a constant: read-only, never part of a capsule.
- A *resident* value is assigned outside every loop and still needed after a loop that
  does not assign it (a scan's stacked outputs are the main case: rows are written
  once each). The program is deterministic, so running a step again writes the same
  value again; one copy beside the capsules serves the whole run.
- One truth, whether every row of every stream has been written, is the sweep's own.
- Everything else lives in a *register*. Registers are the capsule: `d` snapshots hold
  `d` copies of each. Variables that are never live together share one (graph colouring,
  Chaitin 1982), which is what keeps capsules as small as the program's narrowest
  description.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from retape.engines.jaxpr.ir._flow_graph import Liveness, liveness, whole_defs
from retape.engines.jaxpr.ir._ir import (
    Aval,
    Block,
    Item,
    Label,
    Loop,
    Program,
    Var,
    blocks_of,
)
from retape.engines.jaxpr.jaxprs._avals import Kind, full, kind_of, nbytes

Role = Literal["operand", "register", "resident", "truth"]


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """The location of a variable."""

    kind: Role
    index: int


WRITTEN = Location("truth", 0)
"""Of what says that every row has been written."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of a program, and which of them carry a derivative."""

    where: dict[Var, Location]
    avals: dict[Location, Aval]
    active: frozenset[Location]
    fills: dict[Location, Any]
    """The initial value of each element of a resident stream, where it is not zero."""
    resumed: frozenset[Location] = frozenset()
    """Registers that are live where some block begins: those that a snapshot holds.
    What only the last block assigns, an output as a rule, nothing is resumed from."""
    turned: frozenset[Location] = frozenset()
    """Streams whose locations hold cotangents in the end (`_share_cotangents`)."""

    def blank(self, place: Location) -> Any:
        """The content of a place before a run."""
        return full(self.avals[place], self.fills.get(place, 0))

    def cotangent(self, place: Location) -> Any:
        """The key of a place's cotangent in the state of a sweep."""
        return place if place in self.turned else ("d", place)

    def places(self, kind: Role) -> list[Location]:
        """All places of a kind, in order."""
        return sorted(p for p in self.avals if p.kind == kind)

    def capsule_bytes(self) -> int:
        """Bytes of one capsule: the registers and the program counter."""
        return 4 + sum(nbytes(self.avals[p]) for p in self.places("register"))

    def snapshot_bytes(self) -> int:
        """Bytes of a snapshot inside a sweep: the registers that a step begins with."""
        return 4 + sum(nbytes(self.avals[p]) for p in self.resumed)

    def kept_bytes(self) -> int:
        """Bytes of the values that are kept once."""
        return sum(nbytes(self.avals[p]) for p in self.places("resident"))

    def fixed_bytes(self) -> int:
        """Bytes of everything that is held once: registers, cotangents, kept values."""
        held = [p for p in self.avals if p.kind in ("register", "resident")]
        cotangents = [p for p in self.active - self.turned if p.kind != "operand"]
        return sum(nbytes(self.avals[p]) for p in (*held, *cotangents))


def allocate(program: Program) -> tuple[Layout, Liveness]:
    """Choose a place for every variable that crosses from one block to another."""
    live = liveness(program)
    kept = _is_resident(program, live)
    _blank_once(program, kept)
    # Kept values are always there, like operands.
    live = liveness(program, lasting=kept)
    crossing = frozenset().union(*live.entry.values(), *live.exit.values())
    registers = _colour(program, live, crossing)
    where = {v: Location("operand", i) for i, v in enumerate(program.operands)}
    where[program.written] = WRITTEN
    where |= {v: Location("resident", i) for i, v in enumerate(sorted(kept, key=_age))}
    where |= {v: Location("register", i) for v, i in registers.items()}
    avals = {p: v.aval for v, p in where.items()}
    active = frozenset(p for v, p in where.items() if v.active)
    fills = {where[v]: value for v, value in program.fills.items()}
    begun = frozenset().union(*live.entry.values())
    resumed = frozenset(where[v] for v in begun if where[v].kind == "register")
    return Layout(where, avals, active, fills, resumed), live


def _blank_once(program: Program, kept: set[Var]) -> None:
    """Leave out the moves that blank a kept stream before its loop.

    The sweep begins with blank arrays. Blanking one again when the move is replayed
    would cost a pass over it, and would lose rows of a stream that is an output.
    """
    blocks = list(blocks_of(program.items))
    streams = {w.stream for b in blocks for w in b.writes}
    for block in blocks:
        for stream in streams & kept & set(block.moves):
            del block.moves[stream]


def _age(var: Var) -> int:
    return var.serial


def _is_resident(program: Program, live: Liveness) -> set[Var]:
    """Variables assigned outside loops only, that some loop leaves alone."""
    inside: set[Var] = set()
    passing: set[Var] = set()
    for item in program.items:
        if not isinstance(item, Loop):
            continue
        body = list(blocks_of([item]))
        assigned = set().union(*(whole_defs(b) for b in body))
        inside |= assigned
        passing |= live.entry[body[0].label] - assigned
    return passing - inside - program.given


def _colour(
    program: Program, live: Liveness, variables: frozenset[Var]
) -> dict[Var, int]:
    """Register numbers such that variables that are live together differ.

    Greedy graph colouring in the order in which variables were made, each preferring
    the register of a variable that it is moved from or to (Chaitin's coalescing, as a
    preference: it never costs a register). There is no spilling: a register too many
    is memory in every snapshot, not a fault.
    """
    clash = _interference(program, live, variables)
    liked = _copies(program, variables)
    register_type: list[Kind] = []
    register_of: dict[Var, int] = {}
    for var in sorted(variables, key=_age):
        kind = kind_of(var.aval)
        taken = {register_of[o] for o in clash[var] if o in register_of}
        wished = [register_of[o] for o in liked[var] if o in register_of]
        free = [
            s
            for s in (*wished, *range(len(register_type)))
            if s not in taken and register_type[s] == kind
        ]
        if not free:
            register_type.append(kind)
            free = [len(register_type) - 1]
        register_of[var] = free[0]
    return register_of


def _interference(
    program: Program, live: Liveness, variables: frozenset[Var]
) -> dict[Var, set[Var]]:
    """Which variables must not share: what a block assigns, and what it leaves live."""
    clash: dict[Var, set[Var]] = defaultdict(set)
    for block in blocks_of(program.items):
        after = live.exit[block.label] & variables
        for var in block.defs() & after:
            clash[var] |= after - {var}
            for other in after - {var}:
                clash[other].add(var)
    return clash


def _copies(program: Program, variables: frozenset[Var]) -> dict[Var, list[Var]]:
    """Pairs that a move connects: sharing a register makes the move disappear."""
    liked: dict[Var, list[Var]] = defaultdict(list)
    for block in blocks_of(program.items):
        for dst, src in block.moves.items():
            if isinstance(src, Var) and {dst, src} <= variables:
                liked[dst].append(src)
                liked[src].append(dst)
    return liked


def numbering(items: list[Item]) -> dict[Label, int]:
    """Block numbers in program order."""
    return {b.label: i for i, b in enumerate(blocks_of(items))}


def extent(item: Item, number: dict[Label, int]) -> tuple[int, int]:
    """The first and the last block number inside an item."""
    if isinstance(item, Block):
        return number[item.label], number[item.label]
    return extent(item.items[0], number)[0], extent(item.items[-1], number)[1]
