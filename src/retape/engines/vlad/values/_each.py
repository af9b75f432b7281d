"""Operators on whole vectors, for the interpreter and the hybrid: item by item.

An item may be any real, so that derivatives of every level are those of its operators.
`runtime/each.h` does the same, in the same order.
"""

import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from retape.engines.vlad.language._each import (
    DIRECT_OPERANDS,
    Each,
    Item,
    ItemNumber,
    ItemOperand,
    each_of,
)
from retape.engines.vlad.operators._partials import expression
from retape.engines.vlad.operators._row import Operator, Trait
from retape.engines.vlad.operators._table import OPERATORS
from retape.engines.vlad.values._dual_and_taped import (
    CALLED,
    LIFTED,
    Real,
    RealStyle,
    add,
    strip,
)
from retape.engines.vlad.values._products import elements_of, unlike
from retape.engines.vlad.values._values import Mismatch, Value
from retape.engines.vlad.values._versioned_arrays import vector

OfItems = Callable[[Sequence[Real]], Real]


def _item_operator(row: Operator) -> Callable[..., Real]:
    """An operator on items that is made of others."""
    if row.fault is None:  # a text in its operand
        return eval(f"lambda a: {expression(row.c, RealStyle())}", {**CALLED})
    of_items, why, shown = _ON_ITEMS[row.checked], row.fault.why, row.shown
    names = {"isfinite": math.isfinite}
    fails = eval(f"lambda a, b, y: {row.fault.when}", names)

    def checked(a: Real, b: Real) -> Real:
        y = of_items(a, b)
        if fails(*(strip(shown, x) for x in (a, b, y))):
            raise Mismatch(why)
        return y

    return checked


_ON_ITEMS: dict[str, Callable[..., Real]] = {**LIFTED}
_ON_ITEMS.update(
    (name, _item_operator(row))
    for name, row in OPERATORS.items()
    if row.traits & Trait.ITEM
)


def each_operator(name: str) -> Callable[..., Value] | None:
    """What an operator does; `None` if it is none on whole vectors."""
    each = each_of(name)
    if each is None:
        return None
    of_items = _compiled(each.item)

    def operator(*args: Value) -> Value:
        columns = _columns(each, args)
        items = map(of_items, zip(*columns, strict=False))
        if not each.is_sum:
            return vector([*items])
        total: Real = 0.0
        for item in items:
            total = add(total, item)
        return total

    return operator


def _compiled(item: Item) -> OfItems:
    """A function of an item of each operand."""
    if isinstance(item, ItemOperand):
        at = item.at
        return lambda items: items[at]
    if isinstance(item, ItemNumber):
        value = item.value
        return lambda items: value
    function = _ON_ITEMS[item.op]
    first, *rest = (_compiled(arg) for arg in item.args)
    if not rest:
        return lambda items: function(first(items))
    (second,) = rest
    return lambda items: function(first(items), second(items))


def _columns(each: Each, args: tuple[Any, ...]) -> list[Any]:
    """The items of each operand."""
    operands = list(args)
    if len(each.kinds) > DIRECT_OPERANDS:
        while len(operands) < len(each.kinds):
            operands[-1:] = operands[-1]
    found: list[Any] = []
    lengths: set[int] = set()
    for kind, operand in zip(each.kinds, operands, strict=True):
        if kind == "d":
            strip(each.name, operand)
            found.append(repeat(operand))
            continue
        found.append(elements_of("each", operand))
        lengths.add(len(found[-1]))
    if len(lengths) > 1:
        raise Mismatch(unlike("each", *sorted(lengths)[:2]))
    return found
