"""Arrays: their shapes, and new ones."""

import ast
from typing import TYPE_CHECKING, NoReturn

from retape.engines.vlad.language._core import Const, Core, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import CONS, MAKE_VECTOR
from retape.engines.vlad.python.library import _tables
from retape.engines.vlad.python.read._types import (
    INT,
    ArrayType,
    TupleType,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import length_of, part_of
from retape.engines.vlad.python.terms._core_builder import nested_pattern

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions
    from retape.engines.vlad.python.expressions._variables import Variables


class Arrays:
    """Terms of whole arrays."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner
        self._build = owner.build

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    def attribute(self, node: ast.Attribute, env: "Variables") -> Operand:
        """`a.shape`, `a.size`, `a.ndim`."""
        where = self._owner.text.where(node)
        core, type_ = self._owner.expr(node.value, env)
        self._owner.fresh = False
        if isinstance(type_, ArrayType):
            match node.attr:
                case "T" if type_ == ArrayType(2):
                    made = self._owner.written(
                        node, _tables.transposed, [(core, type_)]
                    )
                    self._owner.fresh = False
                    return made
                case "T" if type_.rank == 1:
                    return core, type_
                case "ndim":
                    return Const(where, float(type_.rank)), INT
                case "size":
                    data = core if type_.rank == 1 else self.flat(where, core)
                    return length_of(where, data), INT
                case "shape" if type_.rank == 1:
                    return length_of(where, core), TupleType((INT,))
                case "shape":
                    shape = part_of(self._build, where, core, "shape")
                    return shape, TupleType((INT, INT))
        return self.refuse(
            node,
            f"`.{node.attr}` of {kind_of_type(type_)} is not compiled; an array "
            "has `shape`, `size`, `ndim`, `T` and methods such as `copy()`",
        )

    def length(self, node: ast.AST, operand: Operand) -> Operand:
        """`len(a)`."""
        where = self._owner.text.where(node)
        core, type_ = operand
        match type_:
            case TupleType():
                return Const(where, float(len(type_.items))), INT
            case ArrayType(rank=1):
                return length_of(where, core), INT
            case ArrayType():
                return part_of(self._build, where, core, "rows"), INT
        return self.refuse(node, f"{kind_of_type(type_)} has no length")

    def flat(self, where: Where, core: Core) -> Core:
        """The items of an array of two dimensions, row by row."""
        return part_of(self._build, where, core, "items")

    def new(self, node: ast.AST, shape: Operand, value: Core) -> Operand:
        """An array of a shape, full of one value."""
        where = self._owner.text.where(node)
        core, type_ = shape
        self._owner.fresh = True
        if type_ in (INT, TupleType((INT,))):
            return Prim(where, MAKE_VECTOR, (core, value)), ArrayType(1)
        if type_ != TupleType((INT, INT)):
            self.refuse(
                node,
                "a shape is an int, or a tuple of one or two; use `int(n)` for a float",
            )
        rows, columns, both = (
            self._build.fresh(n) for n in ("rows", "columns", "shape")
        )
        size = Prim(where, "*", (Var(where, rows), Var(where, columns)))
        data = Prim(where, MAKE_VECTOR, (size, value))
        made = Prim(where, CONS, (Var(where, both), data))
        pair = nested_pattern([PVar(rows), PVar(columns)])
        inside = self._build.let(where, pair, Var(where, both), made)
        return self._build.let_var(where, both, core, inside), ArrayType(2)
