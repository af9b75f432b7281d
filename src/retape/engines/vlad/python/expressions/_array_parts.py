"""Parts of arrays by slices, and whole rows and columns: read, and written.

    u[1:-1]          ->   (part u 1 -1 1)
    v[a:b] = x       ->   v' = (set-part v a b 1 x)
    M[i], M[i, :]    ->   (row M i)
    M[:, j]          ->   (column M j)

What is read is a copy, and counts as another name of the array: NumPy's is a view, so
neither is written as long as both are there.
"""

import ast
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Const, Core
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.library import _parts
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    ArrayType,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import LARGEST_INT, Operand

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions
    from retape.engines.vlad.python.expressions._variables import Variables

_FAR = float(LARGEST_INT)
"""A bound that is beyond the end of every array."""

Index = tuple[Operand, ...]
"""An int, or the three bounds of a slice."""

_SETS = {
    "part": (_parts.set_part, _parts.fill_part),
    "row": (_parts.set_row, _parts.fill_row),
    "column": (_parts.set_column, _parts.fill_column),
    "block": (_parts.set_block, _parts.fill_block),
}
_READS: dict[str, Any] = {
    "part": _parts.part,
    "row": _parts.row,
    "column": _parts.column,
    "block": _parts.block,
}


def is_part(node: ast.Subscript, type_: ArrayType) -> bool:
    """Whether a subscript is of more than one item."""
    parts = indices_of(node)
    return len(parts) < type_.rank or any(
        isinstance(each, ast.Slice) or is_new_axis(each) for each in parts
    )


def indices_of(node: ast.Subscript) -> list[ast.expr]:
    """The indices and slices between the brackets."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def is_new_axis(node: ast.expr) -> bool:
    """Whether this is the `None` of `v[:, None]`, by whichever name."""
    is_name = isinstance(node, ast.Attribute) and node.attr == "newaxis"
    return is_name or (isinstance(node, ast.Constant) and node.value is None)


class ArrayParts:
    """Terms of subscripts of more than one item."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner

    def read(self, node: ast.Subscript, array: Operand, env: "Variables") -> Operand:
        """A part, as an array of its own."""
        owner, (core, type_) = self._owner, array
        assert isinstance(type_, ArrayType)
        if any(is_new_axis(each) for each in indices_of(node)):
            return self._with_axis(node, array)
        kind, args = self._found(node, type_, env)
        made, _ = owner.written(node, _READS[kind], [(core, type_), *args])
        owner.fresh = False
        rank = 2 if kind == "block" else 1
        return made, ArrayType(rank, type_.item)

    def row(self, node: ast.AST, array: Operand, at: Operand) -> Operand:
        """A row of an array of two dimensions."""
        every = self._bounds(self._owner.text.where(node), 1)
        return self._owner.written(node, _parts.row, [array, at, *every])

    def with_part(
        self, node: ast.Subscript, array: Operand, value: Operand, env: "Variables"
    ) -> Core:
        """The array of a subscript, with other values there."""
        core, type_ = array
        assert isinstance(type_, ArrayType)
        kind, args = self._found(node, type_, env)
        rank = 2 if kind == "block" else 1
        sets, fills = _SETS[kind]
        if not isinstance(value[1], ArrayType):
            value = self._owner.as_number(node, value)
            value = value[0], UNKNOWN if value[1] is UNKNOWN else FLOAT
        elif value[1].rank != rank:
            self._owner.refuse(
                node,
                f"{kind_of_type(value[1])} is assigned to a part of {rank} "
                f"dimension{'s' * (rank > 1)}; write a loop over the rows",
            )
        function = sets if isinstance(value[1], ArrayType) else fills
        return self._owner.written(node, function, [array, *args, value])[0]

    def _found(
        self, node: ast.Subscript, type_: ArrayType, env: "Variables"
    ) -> tuple[str, list[Operand]]:
        """Which part it is, and the arguments that tell it."""
        parts = indices_of(node)
        if len(parts) > type_.rank:
            self._owner.refuse(
                node, f"{kind_of_type(type_)} has no more than {type_.rank} indices"
            )
        found = [self._index(each, env) for each in parts]
        if type_.rank == 1:
            return "part", [*found[0]]
        all_of_them = self._bounds(self._owner.text.where(node), 1)
        rows, columns = found[0], found[1] if len(found) > 1 else all_of_them
        if len(rows) == 1:
            return "row", [*rows, *columns]
        if len(columns) == 1:
            return "column", [*rows, *columns]
        return "block", [*rows, *columns]

    def _index(self, node: ast.expr, env: "Variables") -> Index:
        owner = self._owner
        if not isinstance(node, ast.Slice):
            return (self.index(node, env),)
        step = 1
        if node.step is not None:
            try:
                step = ast.literal_eval(node.step)
            except ValueError:
                step = 0
            if type(step) is not int or step == 0:
                owner.refuse(node, "the step of a slice is a constant int, not zero")
        bounds = list(self._bounds(owner.text.where(node), step))
        for at, part in enumerate((node.lower, node.upper)):
            if part is not None and not is_new_axis(part):
                bounds[at] = self.index(part, env)
        return tuple(bounds)

    def _bounds(self, where: Where, step: int) -> Index:
        """Those of `[::step]`, beyond both ends."""
        ends = (0.0, _FAR) if step > 0 else (_FAR, -_FAR)
        return tuple((Const(where, each), INT) for each in (*ends, float(step)))

    def index(self, node: ast.expr, env: "Variables") -> Operand:
        """An int between brackets."""
        operand = self._owner.expr(node, env)
        if isinstance(operand[1], ArrayType):
            self._owner.refuse(
                node,
                "an array as an index is not compiled; write a loop over its items, or "
                "`np.where(condition, a, b)` for a mask",
            )
        if operand[1] is BOOL:
            self._owner.refuse(
                node,
                "an index is an int, and this is a bool, which NumPy takes for a "
                "mask; use `int(x)`",
            )
        core, type_ = self._owner.as_number(node, operand)
        if type_ not in (INT, UNKNOWN):
            self._owner.refuse(
                node, "an index is an int, and this is a float; use `int(x)`"
            )
        return core, type_

    def _with_axis(self, node: ast.Subscript, array: Operand) -> Operand:
        """`v[:, None]`, a column; `v[None, :]`, a row."""
        parts = indices_of(node)
        match [is_new_axis(each) or _is_all(each) for each in parts]:
            case [True, True] if array[1] == ArrayType(1):
                pass
            case _:
                self._owner.refuse(
                    node,
                    "`None` makes a column or a row of an array of one dimension, as "
                    "`v[:, None]` and `v[None, :]`",
                )
        if is_new_axis(parts[0]) == is_new_axis(parts[1]):
            self._owner.refuse(node, "one of two indices is `None`, the other `:`")
        return self._owner.wholes.thin(node, array, is_row=is_new_axis(parts[0]))


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and not (node.lower or node.upper or node.step)
