"""Arrays: their shapes, new ones, and products of vectors and matrices."""

import ast
from dataclasses import replace

from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.operators._table import (
    CONS,
    EQUAL,
    MAKE_VECTOR,
    MATRIX_PRODUCT,
    VECTOR_DOT,
)
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library import _parts, _rows
from retape.engines.vlad.python.read._types import (
    FLOAT,
    INT,
    MOST_DIMENSIONS,
    ArrayType,
    ListType,
    TupleType,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand, fault
from retape.engines.vlad.python.terms._array_terms import (
    if_alike,
    items_of,
    length_of,
    length_of_first,
    of_shape,
    product_of,
    shape_term,
)
from retape.engines.vlad.python.terms._core_builder import tuple_of, tuple_pattern

_LINES: dict[tuple[bool, ...], str] = {(True, False): "row", (False, True): "column"}
"""What a shape is, by whether its lengths are written as 1."""


class Arrays(Terms):
    """Terms of whole arrays."""

    def attribute(self, node: ast.Attribute, array: Operand) -> Operand:
        """`a.shape`, `a.size`, `a.ndim`."""
        where = self._owner.text.where(node)
        core, type_ = array.core, array.type
        if isinstance(type_, ArrayType):
            match node.attr:
                case "T" if type_.plain == ArrayType(2):
                    made = self._owner.written(node, _rows.transposed, [array])
                    return replace(made, fresh=False)
                case "T" if type_.rank == 1:
                    return replace(array, fresh=False)
                case "ndim":
                    return Operand(Const(where, float(type_.rank)), INT)
                case "size":
                    data = items_of(self._build, where, core, type_.rank)
                    return Operand(length_of(where, data), INT)
                case "shape":
                    return self._shape(node, array)
        return self.refuse(
            node,
            f"`.{node.attr}` of {kind_of_type(type_)} is not compiled; an array "
            "has `shape`, `size`, `ndim`, `T` and methods such as `copy()`",
        )

    def _shape(self, node: ast.AST, array: Operand) -> Operand:
        where, type_ = self._owner.text.where(node), array.type
        assert isinstance(type_, ArrayType)
        if type_.rank == 1:
            return Operand(length_of(where, array.core), TupleType((INT,)))
        shape = shape_term(self._build, where, array.core, type_.rank)
        return Operand(shape, TupleType((INT,) * type_.rank))

    def length(self, node: ast.AST, operand: Operand) -> Operand:
        """`len(a)`."""
        where = self._owner.text.where(node)
        core, type_ = operand.core, operand.type
        match type_:
            case TupleType():
                return Operand(Const(where, float(len(type_.items))), INT)
            case ArrayType(rank=1):
                return Operand(length_of(where, core), INT)
            case ArrayType(rank=rank):
                return Operand(length_of_first(self._build, where, core, rank), INT)
            case ListType():
                return Operand(length_of_first(self._build, where, core), INT)
        return self.refuse(node, f"{kind_of_type(type_)} has no length")

    def new(self, node: ast.AST, shape: Operand, value: Core) -> Operand:
        """An array of a shape, full of one value."""
        where = self._owner.text.where(node)
        if shape.type in (INT, TupleType((INT,))):
            made = Prim(where, MAKE_VECTOR, (shape.core, value))
            return Operand(made, ArrayType(1), fresh=True)
        rank = len(shape.type.items) if isinstance(shape.type, TupleType) else 0
        if not 2 <= rank <= MOST_DIMENSIONS or shape.type != TupleType((INT,) * rank):
            self.refuse(
                node,
                "a shape is an int, or a tuple of one to four; use `int(n)` for a "
                "float",
            )

        def items(size: Core) -> Core:
            return Prim(where, MAKE_VECTOR, (size, value))

        made = of_shape(self._build, where, shape.core, rank, items)
        return Operand(made, ArrayType(rank), fresh=True)

    def new_like(self, node: ast.AST, like: Operand, value: Core) -> Operand:
        """An array of the shape of another one, full of one value."""
        if not isinstance(like.type, ArrayType):
            self.refuse(node, f"{kind_of_type(like.type)} has no shape; use `np.zeros`")
        return self.new(node, self._shape(node, like), value)

    def reshaped(self, node: ast.AST, array: Operand, shape: list[Operand]) -> Operand:
        """The same items in another shape, of which one length may be -1."""
        owner, where = self._owner, self._owner.text.where(node)
        core, type_ = array.core, array.type
        assert isinstance(type_, ArrayType)
        if len(shape) == 1 and isinstance(shape[0].type, TupleType):
            whole, kinds = shape[0].core, shape[0].type
            names = [self._build.fresh("length") for _ in kinds.items]
            given = [
                Operand(Var(where, name), kind)
                for name, kind in zip(names, kinds.items, strict=True)
            ]
            made = self.reshaped(node, array, given)
            core = self._build.let(where, tuple_pattern(names), whole, made.core)
            return replace(made, core=core)
        kinds = {each.type for each in shape}
        if not 1 <= len(shape) <= MOST_DIMENSIONS or kinds != {INT}:
            self.refuse(node, "a shape is an int, or a tuple of one to four")

        def placed(items: Core, *lengths: Core) -> Core:
            size = length_of(where, items)
            product = product_of(where, lengths)
            facts = [Operand(product, INT), Operand(size, INT)]
            found = [
                owner.written(
                    node, _parts.length_left, [Operand(length, INT), *facts]
                ).core
                for length in lengths
            ]
            return owner.arithmetic.named(
                where, tuple(found), lambda *known: checked(items, size, *known)
            )

        def checked(items: Core, size: Core, *lengths: Core) -> Core:
            same = Prim(where, EQUAL, (product_of(where, lengths), size))
            made = Prim(where, CONS, (tuple_of(where, lengths), items))
            wrong = fault(where, "the shapes of two arrays differ")
            return If(where, same, made if len(lengths) > 1 else items, wrong)

        items = items_of(self._build, where, core, type_.rank)
        cores = (items, *(each.core for each in shape))
        result = owner.arithmetic.named(where, cores, placed)
        ones = [isinstance(e.core, Const) and e.core.value == 1.0 for e in shape]
        line = _LINES.get(tuple(ones), "")
        return Operand(result, ArrayType(len(shape), type_.item, line))

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
