"""Operations on whole arrays: what one expression does with an item is one operator.

    a + h * b      ->   if (= length of a, length of b) (each:vdv:0 1 2 * + a h b) fault

So an expression makes no array but its result. Operands are evaluated, and lengths
compared, in Python's order. What can be a fault, and what takes longer than to read an
item again, as a sine, is the last thing that an operator does.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._each import (
    DIRECT_OPERANDS,
    Each,
    Item,
    ItemNumber,
    ItemOf,
    ItemOperand,
    postfix,
)
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import (
    ADD,
    CHECKED_DIV,
    CHECKED_EXPT,
    CONS,
    DIVIDE,
    EQUAL,
    MAKE_VECTOR,
    MULTIPLY,
    SQUARE,
    SUBTRACT,
    names_with,
)
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library import _rows
from retape.engines.vlad.python.read._types import (
    FLOAT,
    ArrayType,
    FunctionType,
    Scalar,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand, fault
from retape.engines.vlad.python.terms._array_terms import (
    if_alike,
    items_of,
    length_of,
    opened_as,
    parts_of_shape,
)
from retape.engines.vlad.python.terms._core_builder import tuple_of

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions

_LIGHT = names_with(Trait.LIGHT)

_MOST_OPERANDS, _MOST_WORDS = 8, 30

_PLAIN: dict[type[ast.operator], str] = {
    ast.Add: ADD,
    ast.Sub: SUBTRACT,
    ast.Mult: MULTIPLY,
}

Around = Callable[[Core], Core]

_Line = tuple[Operand, bool]
"""A vector that is an array of one row, or of one column, and whether of one row."""


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An operation on whole arrays, of which an operator is about to be made.

    Attributes:
        item: What it does with an item of each operand.
        operands: The variables that it takes.
        kinds: A letter for each: v for a vector, d for a number.
        around: What its term is inside of: where operands get their names, and lengths
            are compared, the outermost first.
        shape: Of arrays of several dimensions: the shape, and the lengths in it.
    """

    item: Item
    operands: tuple[Var, ...]
    kinds: str
    around: tuple[Around, ...]
    shape: tuple[Core, ...] = ()

    @property
    def is_array(self) -> bool:
        return "v" in self.kinds

    @property
    def rank(self) -> int:
        return len(self.shape) - 1 if self.shape else int(self.is_array)

    @property
    def first(self) -> Var:
        """A vector of it."""
        return self.operands[self.kinds.index("v")]

    @property
    def is_light(self) -> bool:
        return not isinstance(self.item, ItemOf) or self.item.op in _LIGHT


class WholeArrays(Terms):
    """Terms of operations on whole arrays."""

    def __init__(self, owner: "Expressions") -> None:
        super().__init__(owner)
        self._made: dict[Core, Whole] = {}

    def unary(self, node: ast.AST, op: str, operand: Operand) -> Operand:
        """An operator of one number, for each item."""
        whole = self._whole(node, operand)
        made = self._array(node, replace(whole, item=ItemOf(op, (whole.item,))))
        return _known(made, operand)

    def binary(
        self, node: ast.AST, op: ast.operator, left: Operand, right: Operand
    ) -> Operand:
        """An operator of two numbers, item by item or with one number."""
        a, b = (getattr(each.type, "rank", 0) for each in (left, right))
        first, second = self._line(node, left, b), self._line(node, right, a)
        if first is not None and second is not None:
            return self._two_lines(node, op, first, second)
        return self._repeated(
            node, (left, right), lambda both: self._binary(node, op, *both)
        )

    def _binary(
        self, node: ast.AST, op: ast.operator, left: Operand, right: Operand
    ) -> Operand:
        ranks = {getattr(each.type, "rank", 0) for each in (left, right)} - {0}
        if len(ranks) > 1:
            low, high = sorted(ranks)
            self._owner.refuse(
                node,
                f"arrays of {low} and of {high} dimensions do not combine here; write "
                "a loop, or give both the same number by `a.reshape(...)`",
            )
        a, b = self._whole(node, left), self._whole(node, right)
        both = self._combined(node, op, a, b)
        words = len([*postfix(both.item)])
        if len(both.operands) > _MOST_OPERANDS or words > _MOST_WORDS:
            a, b = self._alone(node, left), self._alone(node, right)
            both = self._combined(node, op, a, b)
        return _known(self._array(node, both), left, right)

    def sum(self, node: ast.AST, operand: Operand) -> Operand:
        """The sum of all items, from left to right."""
        if not isinstance(operand.type, ArrayType):
            kind = kind_of_type(operand.type)
            self._owner.refuse(node, f"the sum of {kind} is not compiled; use a loop")
        whole = self._whole(node, operand)
        core = self._operator(self._owner.text.where(node), whole, is_sum=True)
        return Operand(_surrounded(whole, core), FLOAT)

    def copy(self, node: ast.AST, operand: Operand) -> Operand:
        """An array of the same items, which is another one: it is written in place."""
        if not isinstance(operand.type, ArrayType):
            return replace(operand, fresh=True)
        made = self._array(node, self._alone(node, operand))
        return replace(made, type=operand.type)

    def by_item(
        self,
        node: ast.AST,
        function: Any,
        operands: list[Operand],
        item: Scalar = FLOAT,
    ) -> Operand:
        """A function of numbers, item by item: a number is an array full of it."""
        return self._repeated(
            node, operands, lambda given: self._by_item(node, function, given, item)
        )

    def _by_item(
        self, node: ast.AST, function: Any, operands: Sequence[Operand], item: Scalar
    ) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        known = [self._alone(node, operand) for operand in operands]
        arrays = [whole for whole in known if whole.is_array]
        if len({whole.rank for whole in arrays}) > 1:
            owner.refuse(
                node,
                "arrays of different numbers of dimensions do not combine here; write "
                "a loop",
            )
        first, *others = arrays
        around = [each for whole in known for each in whole.around]
        around += [
            each for whole in others for each in self._alike(where, first, whole)
        ]
        length = length_of(where, first.first)
        types = [
            each.type if isinstance(each.type, ArrayType) else None for each in operands
        ]
        args: list[Operand] = []
        for whole, type_ in zip(known, types, strict=True):
            if type_ is not None:
                args.append(Operand(whole.first, ArrayType(1, type_.item)))
                continue
            value = whole.operands[0] if whole.operands else self._number(where, whole)
            args.append(
                Operand(Prim(where, MAKE_VECTOR, (length, value)), ArrayType(1))
            )
        items = (_rows.of_items, _rows.of_two_items, _rows.of_three_items)
        applied = Operand(Const(where, ()), FunctionType(function))
        core = owner.written(node, items[len(args) - 1], [*args, applied]).core
        if first.shape:
            core = Prim(where, CONS, (first.shape[0], core))
        for each in reversed(around):
            core = each(core)
        made = Operand(core, ArrayType(first.rank, item), fresh=True)
        return _known(made, *operands)

    def _number(self, where: Where, whole: Whole) -> Core:
        assert isinstance(whole.item, ItemNumber)
        return Const(where, whole.item.value)

    def thin(self, node: ast.AST, vector: Operand, *, is_row: bool) -> Operand:
        """A vector as an array of one row, or of one column."""
        where, one = (
            self._owner.text.where(node),
            Const(self._owner.text.where(node), 1.0),
        )

        def shaped(items: Core) -> Core:
            length = length_of(where, items)
            lengths = (one, length) if is_row else (length, one)
            return Prim(where, CONS, (tuple_of(where, lengths), items))

        core = self._owner.arithmetic.named(where, (vector.core,), shaped)
        return Operand(core, ArrayType(2, line="row" if is_row else "column"))

    def _line(self, node: ast.AST, operand: Operand, other: int) -> _Line | None:
        """A row or a column, as a vector: beside an array of two dimensions it is a
        row; `None` for a table, and beside a number."""
        type_ = operand.type
        if type_ == ArrayType(1) and other == 2:
            return operand, True
        if not isinstance(type_, ArrayType) or not type_.line or not other:
            return None
        items = items_of(
            self._build, self._owner.text.where(node), operand.core, type_.rank
        )
        return Operand(items, ArrayType(1)), type_.line == "row"

    def _repeated(
        self,
        node: ast.AST,
        given: Sequence[Operand],
        go: Callable[[Sequence[Operand]], Operand],
    ) -> Operand:
        """What is made of arrays: beside a table, of rows and columns as often as it
        has some."""
        owner, where = self._owner, self._owner.text.where(node)
        table = next((i for i, each in enumerate(given) if _is_table(each)), None)
        if table is None:
            return go(given)
        lines = [self._line(node, each, 2) for each in given]
        if not any(lines):
            return go(given)
        found = [
            operand if line is None else line[0]
            for operand, line in zip(given, lines, strict=True)
        ]
        made: list[Operand] = []

        def body(*cores: Core) -> Core:
            named = [
                Operand(c, each.type) for c, each in zip(cores, found, strict=True)
            ]
            for i, line in enumerate(lines):
                if line is not None:
                    function = _rows.rows_of if line[1] else _rows.columns_of
                    named[i] = owner.written(node, function, [named[i], named[table]])
            made.append(go(named))
            return made[0].core

        core = owner.arithmetic.named(where, tuple(each.core for each in found), body)
        return Operand(core, made[0].type, fresh=True)

    def _two_lines(
        self, node: ast.AST, op: ast.operator, left: _Line, right: _Line
    ) -> Operand:
        """Two columns or rows; of one of each, a table."""
        (a, is_row), (b, other) = left, right
        if is_row == other:
            return self.thin(node, self.binary(node, op, a, b), is_row=is_row)
        column, row = (b, a) if is_row else (a, b)
        like = self._owner.written(node, _rows.outer, [column, row])
        columns = self._owner.written(node, _rows.columns_of, [column, like])
        rows = self._owner.written(node, _rows.rows_of, [row, like])
        pair = (rows, columns) if is_row else (columns, rows)
        return self.binary(node, op, *pair)

    # operands

    def _whole(self, node: ast.AST, operand: Operand) -> Whole:
        """An operand: what it was made of, or its items."""
        found = self._made.get(operand.core)
        return found if found and found.is_light else self._alone(node, operand)

    def _alone(self, node: ast.AST, operand: Operand) -> Whole:
        where = self._owner.text.where(node)
        if not isinstance(operand.type, ArrayType):
            core = self._owner.as_number(node, operand).core
            if isinstance(core, Const) and isinstance(core.value, float):
                return Whole(ItemNumber(core.value.hex()), (), "", ())
            return self._named(where, core, "d")
        if operand.type.rank == 1:
            return self._named(where, operand.core, "v")
        parts = parts_of_shape(self._build, operand.type.rank)
        *shapes, data = (Var(where, name) for name in parts)

        def around(body: Core) -> Core:
            return opened_as(self._build, where, operand.core, parts, body)

        return Whole(ItemOperand(0), (data,), "v", (around,), tuple(shapes))

    def _named(self, where: Where, core: Core, kind: str) -> Whole:
        if isinstance(core, Var):
            return Whole(ItemOperand(0), (core,), kind, ())
        name = self._build.fresh("x")

        def around(body: Core) -> Core:
            return self._build.let_var(where, name, core, body)

        return Whole(ItemOperand(0), (Var(where, name),), kind, (around,))

    # combinations

    def _combined(self, node: ast.AST, op: ast.operator, a: Whole, b: Whole) -> Whole:
        where = self._owner.text.where(node)
        operands, kinds, places = list(a.operands), a.kinds, list[int]()
        for operand, kind in zip(b.operands, b.kinds, strict=True):
            names = [each.name for each in operands]
            if operand.name not in names:
                names.append(operand.name)
                operands.append(operand)
                kinds += kind
            places.append(names.index(operand.name))
        left, right = a.item, _moved(b.item, places)
        around = (*a.around, *b.around, *self._alike(where, a, b))
        item = _item_of(op, left, right)
        shape = a.shape or b.shape
        return Whole(item, tuple(operands), kinds, around, shape)

    def _alike(self, where: Where, a: Whole, b: Whole) -> tuple[Around, ...]:
        """The comparison of the shapes of two arrays."""
        if not (a.is_array and b.is_array) or a.first.name == b.first.name:
            return ()
        if not a.shape or not b.shape:
            lengths = [length_of(where, a.first), length_of(where, b.first)]
            return (lambda body: if_alike(where, lengths, body),)
        (_, *these), (_, *those) = a.shape, b.shape

        def around(body: Core) -> Core:
            for one, other in zip(these, those, strict=True):
                same = Prim(where, EQUAL, (one, other))
                wrong = fault(where, "the shapes of two arrays differ")
                body = If(where, same, body, wrong)
            return body

        return (around,)

    # terms

    def _array(self, node: ast.AST, whole: Whole) -> Operand:
        where = self._owner.text.where(node)
        core = self._operator(where, whole, is_sum=False)
        if whole.shape:
            core = Prim(where, CONS, (whole.shape[0], core))
        core = _surrounded(whole, core)
        self._made[core] = whole
        return Operand(core, ArrayType(whole.rank), fresh=True)

    def _operator(self, where: Where, whole: Whole, *, is_sum: bool) -> Core:
        name = Each(whole.kinds, whole.item, is_sum).name
        args: tuple[Core, ...] = whole.operands
        if len(args) > DIRECT_OPERANDS:
            *rest, result = args
            for arg in reversed(rest):
                result = Prim(where, CONS, (arg, result))
            args = (result,)
        return Prim(where, name, args)


def _is_table(operand: Operand) -> bool:
    """Whether an array of two dimensions may have many rows and columns."""
    type_ = operand.type
    return isinstance(type_, ArrayType) and type_.rank == 2 and not type_.line


def _known(made: Operand, *given: Operand) -> Operand:
    """A value, which is a row or a column if all arrays that it is made of are."""
    lines = {each.type.line for each in given if isinstance(each.type, ArrayType)}
    line = lines.pop() if len(lines) == 1 else ""
    assert isinstance(made.type, ArrayType)
    return replace(made, type=replace(made.type, line=line))


def _surrounded(whole: Whole, core: Core) -> Core:
    for around in reversed(whole.around):
        core = around(core)
    return core


def _moved(item: Item, places: list[int]) -> Item:
    """An item whose operands have other places."""
    match item:
        case ItemOperand():
            return ItemOperand(places[item.at])
        case ItemOf():
            return ItemOf(item.op, tuple(_moved(arg, places) for arg in item.args))
        case ItemNumber():
            return item


def _item_of(op: ast.operator, left: Item, right: Item) -> Item:
    constant = right.value if isinstance(right, ItemNumber) else None
    match op:
        case ast.Div():
            return ItemOf(DIVIDE if constant else CHECKED_DIV, (left, right))
        case ast.Pow() if constant == 2.0:
            return ItemOf(SQUARE, (left,))
        case ast.Pow():
            return ItemOf(CHECKED_EXPT, (left, right))
    return ItemOf(_PLAIN[type(op)], (left, right))


ON_ARRAYS = (*_PLAIN, ast.Div, ast.Pow)
"""Operators that are compiled for arrays."""
