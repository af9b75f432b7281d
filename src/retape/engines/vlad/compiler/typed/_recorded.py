"""Analysis: which values a way's reverse takes, and which of them are put on the tape.

It is the to-be-recorded analysis of source transformation (Hascoet, Naumann and Pascual
2005), for one way through a block at a time.

What a sum, a difference or a product gives is computed again where its operands are on
the tape too; so a polynomial's step keeps its variable, and no power of it.
"""

from dataclasses import dataclass

from retape.engines.vlad.compiler.typed._derivatives import CHEAP, LEFT, RIGHT
from retape.engines.vlad.compiler.typed._form import Do, Register, TypedAtom
from retape.engines.vlad.compiler.typed._ways import Way


@dataclass(frozen=True, slots=True)
class Recorded:
    """The values of a way that are on the tape, and those that are computed of them."""

    kept: tuple[Register, ...]
    again: tuple[Do, ...]


def recorded(way: Way, useful: frozenset[Register]) -> Recorded:
    """What a way records."""
    wanted: dict[Register, None] = {}
    for step in way.steps:
        if isinstance(step, Do):
            wanted.update(dict.fromkeys(_taken(step, useful)))
    again: list[Do] = []
    for step in reversed(way.steps):
        if isinstance(step, Do) and step.var in wanted and step.op in CHEAP:
            operands = [a for a in step.args if isinstance(a, Register)]
            if all(operand in wanted for operand in operands):
                del wanted[step.var]
                again.append(step)
    return Recorded(tuple(wanted), tuple(reversed(again)))


def _taken(step: Do, useful: frozenset[Register]) -> list[Register]:
    """The values that the reverse of a step takes."""
    atoms: list[TypedAtom] = []
    if step.op == "vector-ref":
        atoms = list(step.args)
    elif step.op == "vector-set":
        atoms = list(step.args[:2])
    elif step.op == "make-vector":
        atoms = [step.var]
    else:
        for arg, rules in zip(step.args, (LEFT, RIGHT), strict=False):
            if step.op in rules and isinstance(arg, Register) and arg in useful:
                takes = rules[step.op].takes
                values = {"a": step.args[0], "b": step.args[-1], "y": step.var}
                atoms += [values[letter] for letter in takes]
    return [atom for atom in atoms if isinstance(atom, Register)]
