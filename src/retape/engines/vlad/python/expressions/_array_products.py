"""`a @ b`: products of vectors and matrices, each one operation of the core."""

import ast

from retape.engines.vlad.language._core import Const, Core, Prim, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import CONS, MATRIX_PRODUCT, VECTOR_DOT
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.read._types import FLOAT, ArrayType
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import (
    if_alike,
    length_of,
    opened,
)


class ArrayProducts(Terms):
    """Terms of products. What does not fit is a fault."""

    def product(self, node: ast.AST, left: Operand, right: Operand) -> Operand:
        """`a @ b`."""
        ranks = getattr(left[1], "rank", 0), getattr(right[1], "rank", 0)
        function = {
            (1, 1): self._dot,
            (2, 1): self._matrix_vector,
            (1, 2): self._vector_matrix,
            (2, 2): self._matrices,
        }.get(ranks)
        if function is None:
            self._owner.refuse(node, "`@` is compiled for vectors and matrices")
        where = self._owner.text.where(node)
        core = self._owner.arithmetic.named(
            where, (left[0], right[0]), lambda a, b: function(where, a, b)
        )
        self._owner.fresh = True
        rank = sum(ranks) - 2
        return core, ArrayType(rank) if rank else FLOAT

    def _dot(self, where: Where, a: Core, b: Core) -> Core:
        lengths = [length_of(where, a), length_of(where, b)]
        return if_alike(where, lengths, Prim(where, VECTOR_DOT, (a, b)))

    def _matrix_vector(self, where: Where, a: Core, b: Core) -> Core:
        def multiplied(shape: Core, rows: Core, columns: Core, items: Core) -> Core:
            one = Prim(where, CONS, (rows, Const(where, 1.0)))
            result = Prim(where, MATRIX_PRODUCT, (one, items, b))
            return if_alike(where, [columns, length_of(where, b)], result)

        return opened(self._build, where, a, multiplied)

    def _vector_matrix(self, where: Where, a: Core, b: Core) -> Core:
        def multiplied(shape: Core, rows: Core, columns: Core, items: Core) -> Core:
            one = Prim(where, CONS, (Const(where, 1.0), columns))
            result = Prim(where, MATRIX_PRODUCT, (one, a, items))
            return if_alike(where, [length_of(where, a), rows], result)

        return opened(self._build, where, b, multiplied)

    def _matrices(self, where: Where, a: Core, b: Core) -> Core:
        def left(shape: Core, rows: Core, inner: Core, items: Core) -> Core:
            def right(other: Core, height: Core, columns: Core, more: Core) -> Core:
                both = self._build.fresh("shape")
                result = Var(where, both)
                made = Prim(where, MATRIX_PRODUCT, (result, items, more))
                pair = Prim(where, CONS, (result, made))
                whole = Prim(where, CONS, (rows, columns))
                bound = self._build.let_var(where, both, whole, pair)
                return if_alike(where, [inner, height], bound)

            return opened(self._build, where, b, right)

        return opened(self._build, where, a, left)
