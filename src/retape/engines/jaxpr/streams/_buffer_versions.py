"""All the names that one buffer has in a program, one after the other.

A buffer that goes through nested loops has a name in each, and one for each version:

    L0:  b = zeros[n, k]        moves o <- b
    L1:                         moves i <- o                    (a loop)
    L2:  r = scatter i j y      moves i <- r                    (a loop in it)
    L3:                         moves o <- i

Here `o`, `i` and `r` are one buffer, if each is used only where it is the newest: then
there may be one array instead, of which L2 writes a row. What it holds in the beginning
is one number, but for some rows (`Start`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from retape.engines.jaxpr.ir._flow_graph import Flow
from retape.engines.jaxpr.ir._ir import Atom, Block, Label, Op, Var
from retape.engines.jaxpr.streams._definitions import Definitions
from retape.engines.jaxpr.streams._row_updates import (
    RowSet,
    Versions,
    chain,
    is_same,
    row_set,
)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer's names, and where they come from."""

    names: frozenset[Var]
    birth: tuple[Block, Var, Atom]
    """The move outside every loop that made it: where, to what, of what."""
    visits: dict[Label, Versions]

    def writers(self, flow: Flow) -> list[Block]:
        """The blocks that set rows."""
        return [b for b in flow.blocks if self.visits[b.label].sets]


def buffer_of(flow: Flow, defs: dict[Label, Definitions], seed: Var) -> Buffer | None:
    """The buffer that a variable is a name of; `None` if it is not the newest in use.

    Also if it has no beginning outside every loop, or several.
    """
    found = _traced_names(flow, defs, seed)
    if found is None:
        return None
    names, births = found
    if len(births) != 1 or not all(_same_type_vars(v, seed) for v in names):
        return None
    visits: dict[Label, Versions] = {}
    for block in flow.blocks:
        ops = defs[block.label].ops if flow.inside(block) else ()
        visit = chain(ops, defs[block.label], names)
        if visit is None:
            return None
        visits[block.label] = visit
    buffer = Buffer(names, births[0], visits)
    return buffer if _newest(flow, defs, buffer) else None


def _same_type_vars(a: Var, b: Var) -> bool:
    return a.aval.shape == b.aval.shape and a.aval.dtype == b.aval.dtype


def _traced_names(
    flow: Flow, defs: dict[Label, Definitions], seed: Var
) -> tuple[frozenset[Var], list[tuple[Block, Var, Atom]]] | None:
    """The names, back to where the first of them is assigned something else."""
    names, births, todo = {seed}, [], [seed]
    operands = set(flow.program.operands)
    while todo:
        var = todo.pop()
        if var in operands:
            return None
        for block in flow.defined[var]:
            source = block.moves.get(var)
            if source is not None and not flow.inside(block):
                if not (isinstance(source, Var) and _is_name(flow, source)):
                    births.append((block, var, source))
                    continue
            if source is not None:
                sources = [source]
            elif flow.inside(block):
                sources = _versions(defs[block.label], var)
            else:
                return None
            if not sources or not all(isinstance(s, Var) for s in sources):
                return None
            more = [s for s in sources if isinstance(s, Var) and s not in names]
            names |= set(more)
            todo += more
    return frozenset(names), births


def _is_name(flow: Flow, var: Var) -> bool:
    """Tell whether a variable is assigned by moves only, or inside loops."""
    definers = flow.defined[var]
    return bool(definers) and all(flow.inside(b) or var in b.moves for b in definers)


def _versions(defs: Definitions, var: Var) -> list[Atom]:
    """The versions of which an operation makes another."""
    op = defs.makers.get(var)
    if op is None:
        return []
    found = row_set(op, defs)
    if found is not None:
        return [found.old]
    if is_same(op):
        return [*op.ins]
    chosen = op.eqn.primitive.name == "select_n" and len(op.ins) == 3
    return [*op.ins[1:]] if chosen else []


def _newest(flow: Flow, defs: dict[Label, Definitions], buffer: Buffer) -> bool:
    """Tell whether the buffer is used only under the name of its newest version."""
    entry = flow.solve(
        frozenset[Var](), lambda b, n: _names_after(buffer, b, n), frozenset.__and__
    )
    writers = buffer.writers(flow)
    last = max((flow.place[b.label] for b in writers), default=-1)
    for block in flow.blocks:
        if block.label not in entry:
            continue
        now, visit = entry[block.label], buffer.visits[block.label]
        if not _entry_names(visit.passed, buffer.names, defs[block.label]) <= now:
            return False
        read = _read_versions(flow, defs[block.label], block, buffer)
        if read is None or (read and flow.inside(block)):
            return False
        if read and not (read <= now and flow.place[block.label] > last):
            return False
    final = _names_after(buffer, flow.blocks[-1], entry[flow.blocks[-1].label])
    return {o for o in flow.program.outs if o in buffer.names} <= final


def _entry_names(ops: list[Op], names: frozenset[Var], defs: Definitions) -> set[Var]:
    """The names under which operations take the buffer as it is on entry."""
    found = {a for op in ops for a in op.ins if isinstance(a, Var) and a in names}
    return found - set(defs.makers)


def _names_after(buffer: Buffer, block: Block, now: frozenset[Var]) -> frozenset[Var]:
    """Names of the newest version behind a block, from those on entry to it."""
    where, name, _ = buffer.birth
    if block is where:
        return frozenset({name})
    visit = buffer.visits[block.label]
    end = visit.last if visit.sets else now | visit.last
    moved = {d for d, s in block.moves.items() if d in buffer.names and s in end}
    return frozenset(moved | {v for v in end if v not in block.moves})


def _read_versions(
    flow: Flow, defs: Definitions, block: Block, buffer: Buffer
) -> frozenset[Var] | None:
    """Versions that a block reads otherwise than to set a row of them.

    `None` if one is read that has no name elsewhere.
    """
    visit = buffer.visits[block.label]
    passed = {id(op) for op in visit.passed}
    made = {o for op in visit.passed for o in op.outs}
    if any(flow.seen_outside(v, block) for v in made - buffer.names):
        return None
    needed = _roots(flow, block, buffer, visit)
    for op in reversed(defs.ops):
        effects = bool(op.eqn.effects)
        if id(op) not in passed and (effects or any(o in needed for o in op.outs)):
            needed |= set(op.ins)
    return frozenset(v for v in needed if v in buffer.names or v in made)


def _roots(flow: Flow, block: Block, buffer: Buffer, visit: Versions) -> set[Any]:
    """Values needed at the end of a block, but for the buffer itself."""
    found: set[Any] = {s for d, s in block.moves.items() if d not in buffer.names}
    found |= {x for w in block.writes for x in (w.stream, w.source)}
    found |= {r.stream for r in block.reads}
    found |= {block.next.index}
    for row in visit.sets:
        found |= {row.index, row.update, *(a for a, _ in row.when)}
    made = {o for op in block.ops for o in op.outs}
    return found | {v for v in made - buffer.names if flow.seen_outside(v, block)}


@dataclass(frozen=True, slots=True)
class Start:
    """An array of one number, with rows set before any loop."""

    blank: Atom
    fill: Any
    rows: list[RowSet]


def start_of(
    atom: Atom, made: Definitions, constants: Mapping[Any, Any]
) -> Start | None:
    """The content of an array, if it is known; `constants` has the values of some."""
    rows: list[RowSet] = []
    op = made.maker(atom)
    while op is not None:
        found = row_set(op, made)
        if found is None:
            break
        rows = [found, *rows]
        atom, op = found.old, made.maker(found.old)
    fill = None
    if op is not None and op.eqn.primitive.name == "broadcast_in_dim":
        fill = made.number(op.ins[0])
    elif op is None and atom in constants:
        fill = _everywhere(constants[atom])
    return None if fill is None else Start(atom, fill, rows)


def _everywhere(array: Any) -> Any:
    """The one number that an array is full of, else `None`."""
    if isinstance(array, Tracer) or jax.dtypes.issubdtype(
        array.dtype, jax.dtypes.extended
    ):
        return None
    numbers = np.asarray(array).reshape(-1)
    same = bool(numbers.size) and numbers.tobytes() == numbers[:1].tobytes() * len(
        numbers
    )
    return numbers[0] if same else None


def is_zero(value: Any) -> bool:
    """Tell whether a number is the zero of blank arrays, which has no sign."""
    number = np.asarray(value)
    signed = number.dtype.kind not in "biu" and bool(np.signbit(np.real(number)))
    return not number and not signed
