"""Arrays: items, shapes, and operations on whole arrays."""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from retape.engines.vlad.language._core import Const, Core, If, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.read._types import (
    FLOAT,
    INT,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    FunctionType,
    TupleType,
    Type,
    kind_of_type,
)
from retape.engines.vlad.python.translate import _prelude as prelude
from retape.engines.vlad.python.translate._arithmetic import Operand, fault
from retape.engines.vlad.python.translate._core_builder import nested_pattern

if TYPE_CHECKING:
    from retape.engines.vlad.python.translate._expressions import Expressions, Variables


class Arrays:
    """Terms of arrays."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner
        self._build = owner.build

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    # items

    def item(self, node: ast.Subscript, env: "Variables") -> Operand:
        """`a[i]`, `a[i, j]`, or `t[0]` of a tuple."""
        owner, where = self._owner, self._owner.text.where(node)
        core, type_ = owner.expr(node.value, env)
        owner.fresh = False
        if isinstance(type_, TupleType):
            index = self._constant_index(node, len(type_.items))
            return owner.opened(where, type_, core, index), type_.items[index]
        if type_ is UNKNOWN:
            return core, UNKNOWN
        if not isinstance(type_, ArrayType):
            self.refuse(node, f"{kind_of_type(type_)} has no items")
        indices = self._indices(node, type_.rank, env)

        def read(vector: Core, at: Core) -> Core:
            return Prim(where, "vector-ref", (vector, at))

        return self._at(where, core, indices, read), FLOAT

    def with_item(
        self, node: ast.Subscript, array: Core, value: Core, env: "Variables"
    ) -> Core:
        """The array of a subscript, with another value there."""
        where = self._owner.text.where(node)
        _, type_ = self._owner.expr(node.value, env)
        assert isinstance(type_, ArrayType)
        indices = self._indices(node, type_.rank, env)

        def write(vector: Core, at: Core) -> Core:
            return Prim(where, "vector-set", (vector, at, value))

        return self._at(where, array, indices, write, rebuild=True)

    def _indices(
        self, node: ast.Subscript, rank: int, env: "Variables"
    ) -> list[tuple[Core, bool]]:
        """The indices, and of each whether it is known not to be negative."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(part, ast.Slice) for part in parts):
            self.refuse(node, "slices are not compiled; write a loop over the items")
        if len(parts) != rank:
            kind = "a[i, j]" if rank == 2 else "a[i]"
            self.refuse(
                node, f"an array of {rank} dimension{'s' * (rank > 1)} is read `{kind}`"
            )
        found: list[tuple[Core, bool]] = []
        for part in parts:
            core, type_ = self._owner.number(part, env)
            if type_ not in (INT, UNKNOWN):
                self.refuse(
                    part, "an index is an int, and this is a float; use `int(x)`"
                )
            found.append((core, self._is_natural(part, env)))
        return found

    def _is_natural(self, node: ast.expr, env: "Variables") -> bool:
        match node:
            case ast.Constant(value=int(value)):
                return value >= 0
            case ast.Name(id=name):
                return name in env and env[name].natural
            case ast.BinOp(op=ast.Add() | ast.Mult(), left=left, right=right):
                return self._is_natural(left, env) and self._is_natural(right, env)
        return False

    def _at(
        self,
        where: Where,
        array: Core,
        indices: list[tuple[Core, bool]],
        act: Callable[[Core, Core], Core],
        rebuild: bool = False,
    ) -> Core:
        """Something done at an item, whose indices may count from the end."""
        named = self._owner.arithmetic.named
        if len(indices) == 1:
            (index, natural) = indices[0]
            if natural:
                return act(array, index)
            return named(
                where,
                (array, index),
                lambda a, i: act(a, _wrapped(where, i, _length(where, a))),
            )
        (i, i_natural), (j, j_natural) = indices

        def flat(shape: Core, rows: Core, columns: Core, data: Core) -> Core:
            def inner(row: Core, column: Core) -> Core:
                place = Prim(where, "+", (Prim(where, "*", (row, columns)), column))
                done = act(data, _inside(where, column, columns, j_natural, place))
                return Prim(where, "cons", (shape, done)) if rebuild else done

            row = i if i_natural else None
            column = j if j_natural else None
            return named(
                where,
                (i, j),
                lambda x, y: named(
                    where,
                    (
                        x if row is not None else _wrapped(where, x, rows),
                        y if column is not None else _wrapped(where, y, columns),
                    ),
                    inner,
                ),
            )

        return self._opened(where, array, flat)

    def _opened(
        self, where: Where, array: Core, body: Callable[[Core, Core, Core, Core], Core]
    ) -> Core:
        """An array of two dimensions, taken apart."""
        rows, columns, data, shape = (
            self._build.fresh(name) for name in ("rows", "columns", "data", "shape")
        )
        pair = nested_pattern([PVar(rows), PVar(columns)])
        variables = [Var(where, name) for name in (shape, rows, columns, data)]
        inside = self._build.let(where, pair, variables[0], body(*variables))
        outer = nested_pattern([PVar(shape), PVar(data)])
        return self._build.let(where, outer, array, inside)

    def _constant_index(self, node: ast.Subscript, length: int) -> int:
        index: Any = None
        try:
            index = ast.literal_eval(node.slice)
        except ValueError:
            pass
        if not isinstance(index, int) or isinstance(index, bool):
            self.refuse(
                node,
                "an item of a tuple is read by a constant, as in `t[0]`; unpack it",
            )
        if not -length <= index < length:
            self.refuse(node, f"a tuple of {length} has no item {index}")
        return index % length

    # shapes

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
                    return _length(where, data), INT
                case "shape" if type_.rank == 1:
                    return _length(where, core), TupleType((INT,))
                case "shape":
                    shape = self._opened(where, core, lambda shape, r, c, d: shape)
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
                return _length(where, core), INT
            case ArrayType():
                return self._opened(where, core, lambda s, rows, c, d: rows), INT
        return self.refuse(node, f"{kind_of_type(type_)} has no length")

    def flat(self, where: Where, core: Core) -> Core:
        """The items of an array of two dimensions, row by row."""
        return self._opened(where, core, lambda s, r, c, data: data)

    # whole arrays

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
                lambda *named: _alike(
                    where,
                    [_length(where, named[i]) for i in arrays],
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

            return self._opened(where, cores[at[1]], second)

        return self._opened(where, cores[at[0]], first)

    def product(self, node: ast.AST, left: Operand, right: Operand) -> Operand:
        """`a @ b`."""
        ranks = getattr(left[1], "rank", 0), getattr(right[1], "rank", 0)
        function = {
            (1, 1): prelude.array_dot,
            (2, 1): prelude.matrix_vector,
            (2, 2): prelude.matrix_matrix,
        }.get(ranks)
        if function is None:
            self.refuse(node, "`@` is compiled for vectors, and matrices on its left")
        where = self._owner.text.where(node)
        kinds: list[Type] = []

        def multiplied(a: Core, b: Core) -> Core:
            core, type_ = self._owner.calls.of_function(
                node,
                FunctionType(function),
                Const(where, ()),
                [(a, left[1]), (b, right[1])],
            )
            kinds.append(type_)
            columns = _length(where, a)
            if ranks[0] == 2:
                columns = self._opened(where, a, lambda s, rows, columns, d: columns)
            rows, _ = self.length(node, (b, right[1]))
            return _alike(where, [columns, rows], core)

        core = self._owner.arithmetic.named(where, (left[0], right[0]), multiplied)
        self._owner.fresh = True
        return core, kinds[0]


def _alike(where: Where, lengths: list[Core], result: Core) -> Core:
    """A term that needs equal lengths of arrays."""
    if len(lengths) < 2:
        return result
    same = Prim(where, "=", (lengths[0], lengths[1]))
    return If(where, same, result, fault(where, "the lengths of two arrays differ"))


def _length(where: Where, vector: Core) -> Core:
    return Prim(where, "vector-length", (vector,))


def _wrapped(where: Where, index: Core, length: Core) -> Core:
    """An index that may count from the end."""
    moved = Prim(where, "+", (index, length))
    return If(where, Prim(where, "negative?", (index,)), moved, index)


def _inside(where: Where, column: Core, columns: Core, natural: bool, at: Core) -> Core:
    """A place in a flat array, if its column exists."""
    wrong = fault(where, "index out of range")
    inner = If(where, Prim(where, "<", (column, columns)), at, wrong)
    if natural:
        return inner
    return If(where, Prim(where, "negative?", (column,)), wrong, inner)
