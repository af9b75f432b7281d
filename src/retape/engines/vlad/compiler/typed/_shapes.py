"""Values of the intermediate form as values of the typed form."""

from collections.abc import Iterator, Sequence

from retape.engines.vlad.compiler.ir._ir import NOTHING, Atom, Let, Lit, Register
from retape.engines.vlad.compiler.typed._form import Shape, parts_of
from retape.engines.vlad.compiler.typed._kinds import (
    LIST,
    REAL,
    UNIT,
    Kind,
    signature_of,
)

Bindings = dict[str, Shape]


def is_refused(term: Let) -> bool:
    """Whether an operand is a constant that the operator does not take."""
    wanted, _ = signature_of(term.op) or ((), REAL)
    given = zip(term.args, wanted, strict=False)
    return any(
        isinstance(atom, Lit) and (type(atom.value) is not float or kind != REAL)
        for atom, kind in given
    )


def shape_of(atom: Atom, known: Bindings, kind: Kind = UNIT) -> Shape:
    """An atom's value, where one of a kind is expected."""
    if isinstance(atom, Lit):
        return () if atom == NOTHING and kind != LIST else atom
    assert isinstance(atom, Register), "kinds agree"
    return known[atom]


def words_of(atom: Atom, known: Bindings, kind: Kind) -> tuple[Atom, ...]:
    return tuple(parts_of(shape_of(atom, known, kind)))


def slots_of(shapes: "Sequence[Shape] | Iterator[Shape]") -> Iterator[Register]:
    """The variables in some values, each once."""
    atoms = (part for shape in shapes for part in parts_of(shape))
    yield from dict.fromkeys(a for a in atoms if isinstance(a, Register))
