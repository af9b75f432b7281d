"""Operators on whole rows: what they do with an item, and what their reverse takes.

    c = matrix-product (rows . columns) a b        reverse: dc, and a and b as they were
    s = vector-dot a b                                      ds, and a and b as they were
    c = each:vdv:0 1 2 * + a h b                            dc, and h and b as they were

A row that the reverse takes is kept: to assign an item of it makes another row, once.
So in a program with such operators `vector-set` becomes `own-set`, whose value may be
another row than its operand, and which has both on the tape.

An item of the result is computed of items of the operands, and an adjoint's of those
and of the result's adjoint `g`. Nothing but the operands is kept: what a sum or a
product within the operator gave is computed again, item by item in registers.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from retape.engines.vlad.compiler.ir._c_text import operator_text, real_text
from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Let,
    Lowered,
    Register,
    all_functions,
    letter_of,
    subterms,
)
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
from retape.engines.vlad.operators._table import (
    MAKE_VECTOR,
    MATRIX_PRODUCT,
    OPERATORS,
    OWN_SET,
    VECTOR_DOT,
    VECTOR_SET,
)


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


CELL = "cell"
"""The operator that puts a real before a list."""

PRODUCTS = (VECTOR_DOT, MATRIX_PRODUCT)
SETS = (VECTOR_SET, OWN_SET)
_GIVING_ROWS = (*SETS, MAKE_VECTOR, MATRIX_PRODUCT)


def keeps_rows(module: Lowered) -> bool:
    """Whether the reverse of some operator takes rows as they were."""
    terms = [fun.body for fun in all_functions(module)]
    while terms:
        term = terms.pop()
        if isinstance(term, Let) and _reads_rows(term.op):
            return True
        terms += subterms(term)
    return False


def _reads_rows(op: str) -> bool:
    each = each_of(op)
    if each is None:
        return op in PRODUCTS
    takes = each_takes(op)
    return takes.result or any(i in takes.operands for i in each.vectors)


def is_each(op: str) -> bool:
    """Whether an operator does something with each item of rows."""
    return each_of(op) is not None


def gives_row(step: Let) -> bool:
    """Whether an operator's value is a row, with adjoints whether useful or not."""
    return step.op in _GIVING_ROWS or (step.var.kind == "v" and is_each(step.op))


def gives_another(op: str) -> bool:
    """Whether an operator on rows does not give the same of the same operands."""
    return op in (*_GIVING_ROWS, *PRODUCTS) or is_each(op)


def each_atoms(step: Let) -> tuple[Atom, ...]:
    """What the reverse of an operator on each item takes: rows for their adjoints."""
    read = each_takes(step.op).operands
    taken = [
        arg for i, arg in enumerate(step.args) if letter_of(arg) == "v" or i in read
    ]
    made = (step.var,) if step.var.kind == "v" else ()
    return (*made, *(arg for arg in taken if isinstance(arg, Register)))


def product_takes(step: Let) -> tuple[Atom, ...]:
    """What the reverse of a product takes."""
    if step.op == VECTOR_DOT:
        return step.args
    _, columns, a, b = step.args
    return (step.var, columns, a, b)
