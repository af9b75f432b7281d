"""What a row of the table of operators says, and how its partials are read.

A partial is text: what a derivative is by one operand, in the operands `a` and `b` and
the value `y`, by the operators of the table. A derivative of any level, a statement of
C and a line of typed code are all made of that one text.

    Operator("sqrt", (REAL,), REAL, c="sqrt(a)", python=..., by=("0.5 / y",))
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import TypeAlias

REAL, TRUTH, ROW, ANY = "real", "bool", "row", "any"

Kind: TypeAlias = "str | tuple[Kind, Kind]"


class Trait(Flag):
    """What a pass may rely on."""

    NONE = 0
    HIDDEN = auto()
    """No program of the language has it; a compiler of ours or a pass made it."""
    ITEM = auto()
    """It is one of the operators on items of whole vectors only."""
    TOTAL = auto()
    """It neither fails nor does anything but give a value."""
    AGAIN = auto()
    """It is cheap: the reverse applies it again instead of keeping its value."""
    LIGHT = auto()
    """It is as quick as a place in memory, and no fault can come of it."""
    COSTLY = auto()
    """It takes many cycles: a value that is needed again is worth a test."""
    INTEGRAL = auto()
    """It gives an integer of integers, if that is not too large."""
    FLOOR = auto()
    """It gives an integer of whatever is finite."""
    OF_FINITE = auto()
    """It is no number of an infinity, for which `math` raises."""
    ENDLESS = auto()
    """It is infinite of infinity, and of nothing else that `math` allows."""
    CHOICE = auto()
    """It gives one of its operands, with its derivatives."""
    CHECK = auto()
    """It gives its operand, or is a fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of Python's that an operator on items may be.

    Attributes:
        why: The reason, one of `PYTHON_FAULTS`.
        when: A test of the operands and the value.
    """

    why: str
    when: str

    @property
    def c(self) -> str:
        """The test in C."""
        return self.when.replace(" and ", " && ").replace("not ", "!")


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table.

    Attributes:
        name: What programs and all forms of the compiler call it.
        takes: The kinds of its operands.
        gives: The kind of its value.
        c: An expression of C, of operands `a` and `b` that are doubles.
        python: The same function of floats, to the bit.
        by: The partials, one for each operand (for each use of it, if there are more);
            none if it is a constant to derivatives.
        traits: What passes may rely on.
        called: Its name as one of C and of Python; else it is made of `name`.
        shown: What messages call it; else `name`.
        boxed: A statement of C for any values, where it is not made of `c`: `{to}`,
            `{site}`, and the operands `{0}`, `{1}` and `{2}`.
        words: What it allocates: words of the heap.
        place: Which of its operands is an index or a length.
        checked: The operator that it is where it is no fault.
        fault: When it is one.
    """

    name: str
    takes: tuple[Kind, ...]
    gives: Kind
    c: str = ""
    python: Callable[..., float | bool] | None = None
    by: tuple[str, ...] = ()
    traits: Trait = Trait.NONE
    called: str = ""
    shown: str = ""
    boxed: str = ""
    words: int = 0
    place: int | None = None
    checked: str = ""
    fault: Fault | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "called", self.called or _NO_WORD.sub("_", self.name))
        object.__setattr__(self, "shown", self.shown or self.name)

    @property
    def arity(self) -> int:
        return len(self.takes)

    @property
    def is_of_reals(self) -> bool:
        """Whether it takes numbers, and is an expression of C."""
        return bool(self.c) and all(kind == REAL for kind in self.takes)

    @property
    def is_lifted(self) -> bool:
        """Whether it has partials of its own, by which derivatives propagate."""
        others = Trait.CHOICE | Trait.CHECK | Trait.ITEM
        return bool(self.by) and not self.traits & others

    @property
    def is_test(self) -> bool:
        """Whether it asks something of numbers."""
        return self.is_of_reals and self.gives == TRUTH

    @property
    def is_call(self) -> bool:
        """Whether it is a function in C, and no operator."""
        return bool(_CALL.match(self.c))

    @property
    def is_elementary(self) -> bool:
        """Whether it is a function of one real with a derivative: not `-`, say."""
        return self.is_lifted and self.arity == 1 and self.is_call


_CALL, _NO_WORD = re.compile(r"\w+\("), re.compile(r"\W")


def parsed(text: str) -> ast.expr:
    """A text's expression."""
    return ast.parse(text, mode="eval").body


ROUNDED = "rint"
"""A function that partials may call, which is no operator: the nearest integer."""


def table(*groups: tuple[Operator, ...]) -> dict[str, Operator]:
    """The rows by their names.

    Raises:
        ValueError: If a partial is of something else than the operands, the value and
            functions that have rows, or an operand has none.
    """
    rows = {row.name: row for group in groups for row in group}
    called = {row.called for row in rows.values()} | {ROUNDED}
    for row in rows.values():
        if row.by and len(row.by) < row.arity:
            raise ValueError(f"`{row.name}` has no partial by its last operand")
        for text in row.by:
            known = called | {"y", *"ab"[: row.arity]}
            names = {n.id for n in ast.walk(parsed(text)) if isinstance(n, ast.Name)}
            if not names <= known:
                raise ValueError(
                    f"the partial `{text}` of `{row.name}` mentions "
                    f"{sorted(names - known)}, which is neither an operand (`a`, `b`) "
                    "nor the value `y` nor a function that has a row"
                )
    return rows
