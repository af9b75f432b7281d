"""What is done along one axis of an array, which is one function of each row of it.

An array of lengths (..., n, ...) is one of (outer, n, inner), whose items stay where
they are.
"""

import ast
from typing import TYPE_CHECKING

from retape.engines.vlad.language._core import Const, Core, Prim
from retape.engines.vlad.operators._table import CONS
from retape.engines.vlad.python.library import _rows
from retape.engines.vlad.python.library._table import ARRAY_FUNCTIONS
from retape.engines.vlad.python.read._types import BOOL, INT, ArrayType, FunctionType
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import opened, product_of
from retape.engines.vlad.python.terms._core_builder import tuple_of

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions


def axis_of(
    owner: "Expressions", node: ast.AST, array: Operand, given: Operand
) -> int | None:
    """A constant axis of an array, counted from the first; `None` for all of them."""
    if given.core == Const(given.core.where, ()):
        return None
    value = (
        given.core.value
        if isinstance(given.core, Const) and given.type is INT
        else None
    )
    if not isinstance(value, float):
        owner.refuse(node, "an axis is compiled if it is a constant int")
    at, rank = int(value), array.type.rank if isinstance(array.type, ArrayType) else 0
    if not -rank <= at < rank:
        owner.refuse(node, f"an array of {rank} dimensions has no axis {at}")
    return at % rank


def is_kept(owner: "Expressions", node: ast.AST, given: Operand | None) -> bool:
    """Whether `keepdims` is given as true."""
    if given is None:
        return False
    if not isinstance(given.core, Const) or given.type is not BOOL:
        owner.refuse(node, "`keepdims` is compiled if it is a constant")
    return bool(given.core.value)


def by_axis(
    owner: "Expressions",
    node: ast.AST,
    name: str,
    array: Operand,
    at: int,
    *,
    kept: bool = False,
) -> Operand:
    """A function of arrays of one dimension, for each row along an axis."""
    where, build = owner.text.where(node), owner.build
    assert isinstance(array.type, ArrayType)
    rank, row = array.type.rank, ARRAY_FUNCTIONS[name]
    along = row.makes == "row"
    function = FunctionType(row.texts.get("1", _rows.sum_of_row))
    every = _rows.along_axis if along else _rows.over_axis

    def found(shape: Core, *parts: Core) -> Core:
        *lengths, data = parts
        one = Const(where, 1.0)
        outer = product_of(where, [one, *lengths[:at]])
        inner = product_of(where, [one, *lengths[at + 1 :]])
        sizes = [Operand(each, INT) for each in (outer, lengths[at], inner)]
        given = [
            Operand(data, ArrayType(1)),
            *sizes,
            Operand(Const(where, ()), function),
        ]
        made = owner.written(node, every, given).core
        if along:
            return Prim(where, CONS, (shape, made))
        left = [*lengths[:at], *[one] * kept, *lengths[at + 1 :]]
        if len(left) == 1 or (rank == 2 and kept):
            return made
        return Prim(where, CONS, (tuple_of(where, left), made))

    result = opened(build, where, array.core, found, rank)
    if along:
        return Operand(result, array.type, fresh=True)
    if kept and rank == 2:
        vector = Operand(result, ArrayType(1))
        return owner.wholes.thin(node, vector, is_row=at == 0)
    return Operand(result, ArrayType(rank - 1 + kept), fresh=True)
