"""What an operator on whole rows does with an item, and what its adjoint does, as C.

An item of the result is computed of items of the operands, and an adjoint's of those
and of the result's adjoint `g`. Nothing but the operands is kept: what a sum or a
product within the operator gave is computed again, item by item in registers.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from retape.engines.vlad.compiler.ir._c_text import operator_text, real_text
from retape.engines.vlad.compiler.typed._derivatives import partials_of
from retape.engines.vlad.language._each import (
    Each,
    Item,
    ItemNumber,
    ItemOf,
    ItemOperand,
    each_of,
)
from retape.engines.vlad.operators._partials import filled
from retape.engines.vlad.operators._table import OPERATORS


@dataclass(slots=True)
class ItemCode:
    """Statements for an item, each value computed where it is first needed.

    Attributes:
        each: The operator.
        lines: The statements.
        read: The places of the operands that they read.
        reads_result: Whether they read what the operator gave.
    """

    each: Each
    lines: list[str] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    reads_result: bool = False
    _known: dict[Item, str] = field(default_factory=dict)

    def value(self, item: Item) -> str:
        """The name of a value, which is then bound."""
        if item not in self._known:
            self._known[item] = self._computed(item)
        return self._known[item]

    def _computed(self, item: Item) -> str:
        match item:
            case ItemNumber():
                return real_text(item.value)
            case ItemOperand():
                self.read.add(item.at)
                if self.each.kinds[item.at] == "d":
                    return f"d{item.at}"
                return self._bound(f"r{item.at}[i]")
            case ItemOf():
                args = [self.value(arg) for arg in item.args]
                return self._bound(operator_text(_unchecked(item), args[0], args[-1]))

    def _bound(self, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const double {name} = {text};")
        return name

    def adjoints(self, operand: int) -> list[str]:
        """The names of what an operand's adjoint gets, in the order of the sweep."""
        found: list[str] = []
        self._back(self.each.item, "g", operand, found)
        return found

    def _back(self, item: Item, g: str, operand: int, found: list[str]) -> None:
        if isinstance(item, ItemOperand) and item.at == operand:
            found.append(g)
        if not isinstance(item, ItemOf):
            return
        partials = partials_of(_unchecked(item))
        for arg, rule in zip(item.args, partials, strict=False):
            if not _mentions(arg, operand):
                continue
            values = {letter: self._letter(item, letter) for letter in rule.takes}
            text = filled(rule.text, {**values, "g": g})
            inner = g if text == g else self._bound(text)
            self._back(arg, inner, operand, found)

    def _letter(self, item: ItemOf, letter: str) -> str:
        if letter != "y":
            return self.value(item.args[0 if letter == "a" else -1])
        if item == self.each.item and not self.each.is_sum:
            self.reads_result = True
            return "y"
        return self.value(item)


def _unchecked(item: ItemOf) -> str:
    """An item's operator, or the one that it is where it is no fault."""
    return OPERATORS[item.op].checked or item.op


def _mentions(item: Item, operand: int) -> bool:
    if isinstance(item, ItemOf):
        return any(_mentions(arg, operand) for arg in item.args)
    return isinstance(item, ItemOperand) and item.at == operand


@dataclass(frozen=True, slots=True)
class EachTakes:
    """What the adjoints of an operator read: places of operands, or its result."""

    operands: frozenset[int]
    result: bool


@lru_cache(maxsize=1024)
def each_takes(name: str) -> EachTakes:
    """What the adjoints of all operands of an operator read.

    Examples:
        >>> sorted(each_takes("each:vdv:0 1 2 * +").operands)
        [1, 2]
    """
    each = each_of(name)
    assert each is not None, "an operator on whole rows"
    codes = [ItemCode(each) for _ in each.kinds]
    for operand, code in enumerate(codes):
        code.adjoints(operand)
    read = frozenset[int]().union(*(code.read for code in codes))
    return EachTakes(read, any(code.reads_result for code in codes))
