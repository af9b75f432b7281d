"""`a @ b`: products of vectors and matrices, each one operation of the core."""

import ast

from retape.engines.vlad.language._core import Const, Core, Prim, Var
from retape.engines.vlad.operators._table import CONS, MATRIX_PRODUCT, VECTOR_DOT
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.read._types import FLOAT, ArrayType
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import if_alike


class ArrayProducts(Terms):
    """Terms of products. What does not fit is a fault."""

    def product(self, node: ast.AST, left: Operand, right: Operand) -> Operand:
        """`a @ b`: a vector is a row on the left, and a column on the right."""
        owner, where = self._owner, self._owner.text.where(node)
        kinds = left.type, right.type
        ranks = [getattr(type_, "rank", 0) for type_ in kinds]
        if not set(ranks) <= {1, 2}:
            owner.refuse(node, "`@` is compiled for vectors and matrices")
        rank = sum(ranks) - 2

        def multiplied(a: Core, b: Core, outer: list[Core]) -> Core:
            if rank == 0:
                return Prim(where, VECTOR_DOT, (a, b))
            shape: Core = Prim(where, CONS, (outer[0], outer[1]))
            if rank == 1:
                return Prim(where, MATRIX_PRODUCT, (shape, a, b))
            name = self._build.fresh("shape")
            items = Prim(where, MATRIX_PRODUCT, (Var(where, name), a, b))
            made = Prim(where, CONS, (Var(where, name), items))
            return self._build.let_var(where, name, shape, made)

        def opened(a: Core, b: Core) -> Core:
            def of_left(_: Core | None, items: Core, *lengths: Core) -> Core:
                def of_right(_: Core | None, more: Core, *others: Core) -> Core:
                    one = Const(where, 1.0)
                    outer = [[*lengths[:-1], one][0], [*others[1:], one][0]]
                    inner = [lengths[-1], others[0]]
                    return if_alike(where, inner, multiplied(items, more, outer))

                return owner.parts.opened(where, Operand(b, kinds[1]), of_right)

            return owner.parts.opened(where, Operand(a, kinds[0]), of_left)

        core = owner.arithmetic.named(where, (left.core, right.core), opened)
        return Operand(core, ArrayType(rank) if rank else FLOAT, fresh=True)
