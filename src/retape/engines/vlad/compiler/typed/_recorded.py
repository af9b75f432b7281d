"""Analysis: which values a way's reverse takes, and which of them are put on the tape.

It is the to-be-recorded analysis of source transformation (Hascoet, Naumann and Pascual
2005), for one way through a block at a time.

What a sum, a difference or a product gives is computed again where its operands are on
the tape too; so a polynomial's step keeps its variable, and no power of it. What a loop
does not change is on the tape once for all times that its way was taken in a row.
"""

from dataclasses import dataclass

from retape.engines.vlad.compiler.ir._ir import Atom, Call, Let, Register, Stop
from retape.engines.vlad.compiler.typed._derivatives import companion_of, partials_of
from retape.engines.vlad.compiler.typed._row_operations import (
    CELL,
    PRODUCTS,
    each_atoms,
    gives_another,
    is_each,
    product_takes,
)
from retape.engines.vlad.compiler.typed._ways import Passed, Way
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import (
    CAR,
    CDR,
    MAKE_VECTOR,
    OWN_SET,
    VECTOR_REF,
    VECTOR_SET,
    names_with,
)

_AGAIN = names_with(Trait.AGAIN)
"""Operators that the reverse runs again instead of keeping their values."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The values of a way that are on the tape, and those that are computed of them.

    Attributes:
        kept: What is on the tape each time that the way is taken.
        again: What is computed of it.
        fixed: What is on the tape once for as many times as it was taken in a row.
        same: Variables that are other names of a value, or of the same row after an
            assignment, and the value.
        beside: Variables whose derivative is another variable, such as a sine's.
    """

    kept: tuple[Register, ...]
    again: tuple[Let, ...]
    fixed: tuple[Register, ...]
    same: dict[Atom, Atom]
    beside: dict[Register, Register]


def recorded(way: Way, useful: frozenset[Register]) -> Recorded:
    """What a way records."""
    same = _other_names(way)
    beside = _beside(way, same)
    wanted: dict[Atom, None] = {}
    for step in way.steps:
        if isinstance(step, Let):
            needs = _taken(step, useful, beside.get(step.var))
            taken = (same.get(atom, atom) for atom in needs)
            wanted.update(dict.fromkeys(a for a in taken if isinstance(a, Register)))
    fixed = _unchanged(way, same)
    cells = _cells_again(way, wanted, same)
    again: list[Let] = []
    for step in reversed(way.steps):
        if isinstance(step, Let) and step.var in wanted and step.op in _AGAIN:
            atoms = (same.get(a, a) for a in step.args)
            operands = [a for a in atoms if isinstance(a, Register)]
            known = (*wanted, *fixed, *cells)
            if all(operand in known for operand in operands):
                del wanted[step.var]
                wanted.update(dict.fromkeys(a for a in operands if a not in cells))
                again.append(step)
    registers = [atom for atom in wanted if isinstance(atom, Register)]
    return Recorded(
        tuple(atom for atom in registers if atom not in fixed),
        (*cells.values(), *reversed(again)),
        tuple(atom for atom in registers if atom in fixed),
        same,
        beside,
    )


def _cells_again(
    way: Way, wanted: dict[Atom, None], same: dict[Atom, Atom]
) -> dict[Atom, Let]:
    """Lists that are wanted and stand behind a cell that is: they are found there."""
    found: dict[Atom, Let] = {}
    for step in reversed(way.steps):
        if isinstance(step, Let) and step.op == CELL:
            rest = same.get(step.args[1], step.args[1])
            if isinstance(rest, Register) and rest in wanted and rest not in found:
                found[rest] = Let(rest, CDR, (step.var,), -1, Stop())
    for rest in found:
        del wanted[rest]
    return found


def _other_names(way: Way) -> dict[Atom, Atom]:
    """The variables of a way that are other names, and what of."""
    same: dict[Atom, Atom] = {}
    for step in way.steps:
        if isinstance(step, Passed):
            same[step.var] = same.get(step.value, step.value)
        elif step.op == VECTOR_SET:
            same[step.var] = same.get(step.args[0], step.args[0])
    return same


def _beside(way: Way, same: dict[Atom, Atom]) -> dict[Register, Register]:
    """The variables of a way whose derivative it has computed, too."""
    steps = [
        step for step in way.steps if isinstance(step, Let) and companion_of(step.op)
    ]
    made = {(s.op, same.get(s.args[0], s.args[0])): s.var for s in steps}
    found: dict[Register, Register] = {}
    for step in steps:
        companion = companion_of(step.op)
        assert companion is not None, "so it was chosen"
        other = made.get((companion.name, same.get(step.args[0], step.args[0])))
        if other is not None:
            found[step.var] = other
    return found


def _unchanged(way: Way, same: dict[Atom, Atom]) -> set[Atom]:
    """The values that are the same each time that a loop's way is taken."""
    if way.loop is None:
        return set()
    assert isinstance(way.end, Call), "a loop's way calls its function"
    passed = zip(way.loop.params, way.end.args, strict=True)
    found: set[Atom] = {*way.loop.live}
    found.update(p for p, arg in passed if p == same.get(arg, arg))
    for step in way.steps:
        if isinstance(step, Let) and not _is_changing(step.op):
            atoms = (same.get(atom, atom) for atom in step.args)
            if all(a in found or not isinstance(a, Register) for a in atoms):
                found.add(step.var)
    return found


def _is_changing(op: str) -> bool:
    """Whether an operator does not give the same of the same operands."""
    return op in (VECTOR_REF, CELL) or gives_another(op)


def _taken(
    step: Let, useful: frozenset[Register], beside: Register | None
) -> list[Register]:
    """The values that the reverse of a step takes."""
    atoms: list[Atom] = []
    if beside is not None:
        atoms = [beside] if step.args[0] in useful else []
    elif step.op == VECTOR_REF:
        atoms = list(step.args)
    elif step.op == VECTOR_SET:
        atoms = list(step.args[:2])
    elif step.op == OWN_SET:
        atoms = [*step.args[:2], step.var]
    elif step.op in PRODUCTS:
        atoms = list(product_takes(step))
    elif step.op in (MAKE_VECTOR, CELL):
        atoms = [step.var]
    elif is_each(step.op):
        atoms = list(each_atoms(step))
    elif step.op == CAR:
        atoms = list(step.args) if step.var in useful else []
    else:
        for arg, partial in zip(step.args, partials_of(step.op), strict=False):
            if isinstance(arg, Register) and arg in useful:
                values = {"a": step.args[0], "b": step.args[-1], "y": step.var}
                atoms += [values[letter] for letter in partial.takes]
    return [atom for atom in atoms if isinstance(atom, Register)]
