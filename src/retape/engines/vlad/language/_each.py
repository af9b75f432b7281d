"""Operators on whole vectors, item by item: what each does is its name.

    each:vdv:0 1 2 * +      of a, b and c: the vector of all a[i] + b * c[i]
    sum:v:0 square          of a: the sum of all a[i] * a[i], from left to right

First the kinds of the operands, vectors and numbers, then what is done with an item of
each, in postfix notation: the operands by their places, numbers in hexadecimal, and
operators. An operator of more than three operands takes them as one, as
`(cons a (cons b c))`. Vectors are of one length, and at least one operand is one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from retape.engines.vlad.operators._table import OPERATORS

DIRECT_OPERANDS = 3
"""Operands that an operator takes as they are; more are a list."""

_EACH, _SUM = "each", "sum"


@dataclass(frozen=True, slots=True)
class ItemOperand:
    """The item of an operand that is a vector, or an operand that is a number."""

    at: int


@dataclass(frozen=True, slots=True)
class ItemNumber:
    """A constant; its text tells zeros apart."""

    text: str

    @property
    def value(self) -> float:
        return float.fromhex(self.text)


@dataclass(frozen=True, slots=True)
class ItemOf:
    """An operator of one or two values."""

    op: str
    args: "tuple[Item, ...]"


Item: TypeAlias = ItemOperand | ItemNumber | ItemOf


@dataclass(frozen=True, slots=True)
class Each:
    """An operator on whole vectors.

    Attributes:
        kinds: A letter for each operand: v for a vector, d for a number.
        item: What is done with an item of each.
        is_sum: Whether the result is the sum of the items.
    """

    kinds: str
    item: Item
    is_sum: bool = False

    @property
    def name(self) -> str:
        """The name of the operator."""
        kind = _SUM if self.is_sum else _EACH
        return f"{kind}:{self.kinds}:{' '.join(postfix(self.item))}"

    @property
    def vectors(self) -> tuple[int, ...]:
        """The places of the operands that are vectors."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind == "v")


def postfix(item: Item) -> Iterator[str]:
    """The words of an item, operands before their operators."""
    match item:
        case ItemOperand():
            yield str(item.at)
        case ItemNumber():
            yield f"#{item.text}"
        case ItemOf():
            for arg in item.args:
                yield from postfix(arg)
            yield item.op


@lru_cache(maxsize=1024)
def each_of(operator: str) -> Each | None:
    """The operation of an operator's name; `None` for another operator.

    Examples:
        >>> each_of("sum:v:0 square").item, each_of("sin")
        (ItemOf(op='square', args=(ItemOperand(at=0),)), None)
    """
    kind, _, rest = operator.partition(":")
    if kind not in (_EACH, _SUM):
        return None
    kinds, _, words = rest.partition(":")
    stack: list[Item] = []
    for word in words.split():
        if word.isdigit():
            stack.append(ItemOperand(int(word)))
        elif word.startswith("#"):
            stack.append(ItemNumber(word[1:]))
        else:
            count = OPERATORS[word].arity
            args = tuple(stack[-count:])
            stack[-count:] = [ItemOf(word, args)]
    (item,) = stack
    return Each(kinds, item, kind == _SUM)
