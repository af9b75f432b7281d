"""Whole arrays: their shapes, and operations item by item."""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from retape.engines.vlad.language._core import Const, Core, If, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.read._types import (
    INT,
    NUMBERS,
    ArrayType,
    FunctionType,
    TupleType,
    kind_of_type,
)
from retape.engines.vlad.python.terms import _prelude as prelude
from retape.engines.vlad.python.terms._arithmetic import Operand, fault
from retape.engines.vlad.python.terms._array_terms import (
    if_alike,
    length_of,
    opened,
    part_of,
)
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
            "has `shape`, `size`, `ndim` and `copy()`",
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
        if type_ in NUMBERS:
            return Prim(where, "make-vector", (core, value)), ArrayType(1)
        if type_ == TupleType((INT,)):
            return Prim(where, "make-vector", (core, value)), ArrayType(1)
        if type_ != TupleType((INT, INT)):
            self.refuse(
                node, "a shape is an int, or a tuple of two; more are not compiled"
            )
        rows, columns, both = (
            self._build.fresh(n) for n in ("rows", "columns", "shape")
        )
        size = Prim(where, "*", (Var(where, rows), Var(where, columns)))
        data = Prim(where, "make-vector", (size, value))
        made = Prim(where, "cons", (Var(where, both), data))
        pair = nested_pattern([PVar(rows), PVar(columns)])
        inside = self._build.let(where, pair, Var(where, both), made)
        return self._build.let_var(where, both, core, inside), ArrayType(2)

    def each(self, node: ast.AST, function: FunctionType, operand: Operand) -> Operand:
        """A function of one number, for each item."""
        return self._lifted(node, prelude.each_of_array, function, [operand])

    def elementwise(
        self, node: ast.AST, function: Any, left: Operand, right: Operand
    ) -> Operand:
        """A function of two numbers, item by item or with one number."""
        kinds = isinstance(left[1], ArrayType), isinstance(right[1], ArrayType)
        loop = {
            (True, True): prelude.each_of_two,
            (True, False): prelude.each_with_number,
            (False, True): prelude.each_of_number,
        }[kinds]
        operands = [
            each if is_array else self._owner.as_number(node, each)
            for each, is_array in zip((left, right), kinds, strict=True)
        ]
        return self._lifted(node, loop, FunctionType(function), operands)

    def _lifted(
        self, node: ast.AST, loop: Any, function: FunctionType, operands: list[Operand]
    ) -> Operand:
        where = self._owner.text.where(node)
        ranks = {t.rank for _, t in operands if isinstance(t, ArrayType)}
        if len(ranks) > 1:
            self.refuse(node, "arrays of one and of two dimensions do not combine here")
        given: list[Operand] = [(Const(where, ()), function)]

        def run(cores: list[Core]) -> Core:
            args = [
                (core, ArrayType(1) if isinstance(t, ArrayType) else t)
                for core, (_, t) in zip(cores, operands, strict=True)
            ]
            result, _ = self._owner.calls.of_function(
                node, FunctionType(loop), Const(where, ()), given + args
            )
            return result

        if ranks == {1}:
            cores = tuple(core for core, _ in operands)
            arrays = [
                i for i, (_, t) in enumerate(operands) if isinstance(t, ArrayType)
            ]
            result = self._owner.arithmetic.named(
                where,
                cores,
                lambda *named: if_alike(
                    where,
                    [length_of(where, named[i]) for i in arrays],
                    run(list(named)),
                ),
            )
        else:
            result = self._flat(where, operands, run)
        self._owner.fresh = True
        return result, ArrayType(*ranks)

    def _flat(
        self,
        where: Where,
        operands: list[Operand],
        run: Callable[[list[Core]], Core],
    ) -> Core:
        """The same on the items of arrays of two dimensions, which have one shape."""
        cores = [core for core, _ in operands]
        at = [i for i, (_, t) in enumerate(operands) if isinstance(t, ArrayType)]

        def first(shape: Core, rows: Core, columns: Core, data: Core) -> Core:
            cores[at[0]] = data
            if len(at) == 1:
                return Prim(where, "cons", (shape, run(cores)))

            def second(other: Core, r: Core, c: Core, more: Core) -> Core:
                cores[at[1]] = more
                result = Prim(where, "cons", (shape, run(cores)))
                wrong = fault(where, "the shapes of two arrays differ")
                same = If(where, Prim(where, "=", (columns, c)), result, wrong)
                return If(where, Prim(where, "=", (rows, r)), same, wrong)

            return opened(self._build, where, cores[at[1]], second)

        return opened(self._build, where, cores[at[0]], first)
