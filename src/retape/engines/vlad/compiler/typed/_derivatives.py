"""The partials of the table as typed code: C on doubles.

`g` is the adjoint of the result `y` of operands `a` and `b`. Each product is the one
that boxed code computes, in its order, so that both agree in every bit.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache

from retape.engines.vlad.operators._partials import on_doubles
from retape.engines.vlad.operators._row import Operator, Trait, parsed
from retape.engines.vlad.operators._table import OPERATORS

_SCALED = {"0.0": "0.0", "1.0": "g", "-1.0": "-g"}


@dataclass(frozen=True, slots=True)
class Partial:
    """What an operand's adjoint gets, and which values that takes (`a`, `b`, `y`)."""

    text: str
    takes: str = ""


@cache
def partials_of(name: str) -> tuple[Partial, ...]:
    """What the adjoints of an operator's operands get; none if it has no derivative.

    Examples:
        >>> [partial.text for partial in partials_of("/")]
        ['(1.0 / b) * g', '((0.0 - y) / b) * g']
    """
    row = OPERATORS.get(name)
    if row is None or not row.by:
        return ()
    if len(row.by) > row.arity:  # an operand is used more than once
        takes = "".join(sorted({*map(_letters_in, row.by)}))
        return (Partial(" + ".join(_scaled(row, by) for by in row.by), takes),)
    return tuple(Partial(_scaled(row, by), _letters_in(by)) for by in row.by)


def _letters_in(text: str) -> str:
    names = {node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name)}
    return "".join(letter for letter in "aby" if letter in names)


def _scaled(row: Operator, text: str) -> str:
    """A partial times `g`; a choice passes it on, whatever it is, or nothing."""
    if text in _SCALED:
        return _SCALED[text]
    node = parsed(text)
    if row.traits & Trait.CHOICE:
        assert isinstance(node, ast.IfExp), "a choice is between two operands"
        arms = (_SCALED[ast.unparse(arm)] for arm in (node.body, node.orelse))
        return f"({ast.unparse(node.test)} ? {' : '.join(arms)})"
    factor = on_doubles(text)
    return f"({factor}) * g" if isinstance(node, ast.BinOp) else f"{factor} * g"


@dataclass(frozen=True, slots=True)
class Companion:
    """Another operator's value that is in a partial, such as the cosine in a sine's.

    Attributes:
        name: The other operator; its operand is the same.
        text: What the operand's adjoint gets, of the other one's value `p`.
    """

    name: str
    text: str


@cache
def companion_of(name: str) -> Companion | None:
    """The operator whose value saves computing a partial; `None` if there is none.

    Examples:
        >>> companion_of("cos")
        Companion(name='sin', text='(0.0 - p) * g')
    """
    row = OPERATORS.get(name)
    if row is None or not row.is_elementary:
        return None
    for other in OPERATORS.values():
        text, found = re.subn(rf"\b{other.called}\(a\)", "p", row.by[0])
        if found and other.is_elementary and "a" not in _letters_in(text):
            factor = f"({text})" if " " in text else text
            return Companion(other.name, f"{factor} * g")
    return None
