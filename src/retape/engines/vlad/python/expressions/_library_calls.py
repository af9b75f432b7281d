"""Calls of functions of Python, `math` and NumPy, by the rows of their table."""

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from retape.engines.vlad.language._core import Const, Core, Prim
from retape.engines.vlad.operators._table import CONS, MAXIMUM, MINIMUM, OPERATORS
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library import _rows
from retape.engines.vlad.python.library._table import (
    FUNCTIONS,
    METHODS,
    LibraryFunction,
)
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    FunctionType,
    ListType,
    Scalar,
    TupleType,
    Type,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import items_of, opened, product_of
from retape.engines.vlad.python.terms._core_builder import tuple_of

_FILLED = {"zeros": 0.0, "empty": 0.0, "ones": 1.0}
"""What arrays are full of; else the last argument says it."""

_SURE = ("tanh", "erf", "abs")
"""Functions of `math` that have a value for every number."""

_SURE_OF_INTS = (*_SURE, "sin", "cos")


def _kind(type_: Type) -> str:
    """The letter of an argument's type in the table of texts."""
    if isinstance(type_, ArrayType):
        return str(type_.rank) if type_.item is FLOAT else "?"
    if isinstance(type_, ListType):
        return "l" if type_.item in (*NUMBERS, BOOL, UNKNOWN) else "?"
    return {INT: "i", FLOAT: "f"}.get(type_, "?") if isinstance(type_, Scalar) else "?"


def _is_mask(type_: Type) -> bool:
    return isinstance(type_, ArrayType) and type_.item is BOOL


class LibraryCalls(Terms):
    """Terms of calls of library functions."""

    def call(
        self,
        node: ast.AST,
        row: LibraryFunction,
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand:
        """A function of a library, by its row."""
        args, keywords = list(args), dict(keywords)
        if keywords or (row.takes_axis and len(args) == 2):
            found = self._along(node, row, args, keywords)
            if found is not None:
                return found
        if row.is_of_arrays:
            args = [self._as_array(node, arg) for arg in args]
        if any(each.type is UNKNOWN for each in args):
            return Operand(Const(self._owner.text.where(node), ()), UNKNOWN)
        for each in args:
            if not row.takes_ints:
                self._owner.refuse_ints(node, each.type)
        if row.count is not None:
            self._counted(node, args, row.count)
        if row.rule:
            return _LIBRARY_RULES[row.rule](self, node, row, args)
        if row.operator:
            return self._operator(node, row, args)
        return self._written(node, row, args)

    def _as_array(self, node: ast.AST, operand: Operand) -> Operand:
        if not isinstance(operand.type, ListType):
            return operand
        return self._owner.lists.as_array(node, operand)

    def _counted(self, node: ast.AST, args: list[Operand], count: int) -> None:
        if len(args) != count:
            self.refuse(node, f"{count} arguments are compiled here, not {len(args)}")

    def _number(self, node: ast.AST, row: LibraryFunction, operand: Operand) -> Operand:
        """An argument that is a number; of a bool some functions make another type."""
        if operand.type is BOOL and not row.takes_bools:
            self.refuse(
                node,
                "of a bool this function gives a bool, or a number in half precision; "
                "write `int(x)` or `float(x)`",
            )
        return self._owner.as_number(node, operand)

    # operators and texts

    def _operator(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        """An operator of numbers, of an array of each item."""
        owner, where, op = self._owner, self._owner.text.where(node), row.operator
        is_by_item = row.is_of_arrays or row.name == "abs"
        if is_by_item and isinstance(args[0].type, ArrayType):
            return owner.wholes.unary(node, op, args[0])
        numbers = [self._number(node, row, arg) for arg in args]
        types, cores = [each.type for each in numbers], [each.core for each in numbers]
        if row.raises and op not in (_SURE_OF_INTS if types == [INT] else _SURE):
            return Operand(owner.arithmetic.math(where, op, cores[0]), FLOAT)
        is_int = op == "abs" and types == [INT] and not row.raises
        gives = BOOL if OPERATORS[op].is_test else INT if is_int else FLOAT
        return Operand(Prim(where, op, tuple(cores)), gives)

    def _written(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        """A function that is written in the language."""
        owner, name = self._owner, row.name
        if name == "where":
            self._check_choice(node, args)
        if row.by_item and any(isinstance(each.type, ArrayType) for each in args):
            return owner.wholes.by_item(node, row.texts["n" * len(args)], args)
        if row.by_item or row.takes_bools:
            args = [self._number(node, row, arg) for arg in args]
        if args and row.makes and isinstance(args[0].type, ArrayType):
            args = [self._flat(node, args[0]), *args[1:]]
        kinds = "".join(_kind(each.type) for each in args)
        function = row.text_for(kinds)
        if function is None:
            given = " and ".join(kind_of_type(each.type) for each in args)
            given = given or "nothing"
            self.refuse(node, f"`{name}` of {given} is not compiled; write a loop")
        result = owner.written(node, function, args)
        if row.is_view:
            result = replace(result, fresh=False)
        if name == "arange" and set(kinds) == {"i"}:
            result = replace(result, type=ArrayType(1, INT))
        return result

    def _flat(self, node: ast.AST, array: Operand) -> Operand:
        """All items of an array, one row after another."""
        assert isinstance(array.type, ArrayType)
        where, build = self._owner.text.where(node), self._owner.build
        return Operand(
            items_of(build, where, array.core, array.type.rank),
            ArrayType(1, array.type.item),
        )

    def _check_choice(self, node: ast.AST, args: list[Operand]) -> None:
        """Refuse what `np.where` would make another type of array of."""
        if not _is_mask(args[0].type):
            self.refuse(node, "`np.where` takes a comparison of arrays first")
        for each in args[1:]:
            self._owner.refuse_ints(node, each.type)
        if all(each.type in (INT, BOOL) for each in args[1:]):
            self.refuse(
                node,
                "`np.where` of two ints makes an array of ints; write one as a float",
            )

    # along one axis of an array, which is one function of each row of it: an array of
    # lengths (..., n, ...) is one of (outer, n, inner), whose items stay where they are

    def _along(
        self,
        node: ast.AST,
        row: LibraryFunction,
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand | None:
        """A function along an axis; `None` for all of an array."""
        if row.takes_axis and len(args) == 2:
            keywords["axis"] = args.pop()
        axis, kept = keywords.pop("axis", None), keywords.pop("keepdims", None)
        is_array = bool(args) and isinstance(args[0].type, ArrayType)
        if keywords or not row.takes_axis or not is_array:
            names = {each.name for each in FUNCTIONS.values() if each.takes_axis}
            self.refuse(
                node,
                "of the keyword arguments of library functions `axis` and `keepdims` "
                f"are compiled, with constants, of {', '.join(sorted(names))}",
            )
        array = args[0]
        self._owner.refuse_ints(node, array.type)
        at = None if axis is None else self._axis(node, array, axis)
        is_kept = self._is_kept(node, kept)
        if at is not None and getattr(array.type, "rank", 0) > 1:
            return self._by_axis(node, row, array, at, is_kept)
        if is_kept:
            wanted = "an `axis`" if at is None else "two dimensions or more"
            self.refuse(node, f"`keepdims` is compiled with {wanted}")
        return None

    def _axis(self, node: ast.AST, array: Operand, given: Operand) -> int | None:
        """A constant axis, counted from the first; `None` for all of them."""
        if given.type is NONE:
            return None
        value = given.core.value if isinstance(given.core, Const) else None
        if given.type is not INT or not isinstance(value, float):
            self.refuse(node, "an axis is compiled if it is a constant int")
        at, rank = int(value), getattr(array.type, "rank", 0)
        if not -rank <= at < rank:
            self.refuse(node, f"an array of {rank} dimensions has no axis {at}")
        return at % rank

    def _is_kept(self, node: ast.AST, given: Operand | None) -> bool:
        if given is None:
            return False
        if not isinstance(given.core, Const) or given.type is not BOOL:
            self.refuse(node, "`keepdims` is compiled if it is a constant")
        return bool(given.core.value)

    def _by_axis(
        self, node: ast.AST, row: LibraryFunction, array: Operand, at: int, kept: bool
    ) -> Operand:
        """A function of arrays of one dimension, for each row along an axis."""
        owner, where = self._owner, self._owner.text.where(node)
        assert isinstance(array.type, ArrayType)
        rank, gives_rows = array.type.rank, row.makes == "row"
        every = _rows.along_axis if gives_rows else _rows.over_axis

        def found(shape: Core, *parts: Core) -> Core:
            *lengths, data = parts
            one = Const(where, 1.0)
            outer = product_of(where, [one, *lengths[:at]])
            inner = product_of(where, [one, *lengths[at + 1 :]])
            sizes = [Operand(each, INT) for each in (outer, lengths[at], inner)]
            function = Operand(Const(where, ()), FunctionType(row.texts["1"]))
            given = [Operand(data, ArrayType(1)), *sizes, function]
            made = owner.written(node, every, given).core
            if gives_rows:
                return Prim(where, CONS, (shape, made))
            left = [*lengths[:at], *[one] * kept, *lengths[at + 1 :]]
            if len(left) == 1 or (rank == 2 and kept):
                return made
            return Prim(where, CONS, (tuple_of(where, left), made))

        result = opened(owner.build, where, array.core, found, rank)
        if gives_rows:
            return Operand(result, array.type, fresh=True)
        if kept and rank == 2:
            vector = Operand(result, ArrayType(1))
            return owner.wholes.thin(node, vector, is_row=at == 0)
        return Operand(result, ArrayType(rank - 1 + kept), fresh=True)

    # rules

    def _of_list(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        """`list`, `np.array` or `np.asarray` of one value."""
        owner, (value,) = self._owner, args
        type_ = value.type
        if isinstance(type_, TupleType):
            value = owner.lists.of_tuple(node, value)
        if row.rule == "list":
            if isinstance(type_, ArrayType) and type_.rank == 1:
                return owner.lists.of_array(node, value)
            if not isinstance(value.type, ListType):
                self.refuse(node, f"`list` of {kind_of_type(type_)} is not compiled")
            return owner.lists.copied(node, value)
        if isinstance(type_, ArrayType):
            if row.name == "asarray":
                return replace(value, fresh=False)
            return owner.wholes.copy(node, value)
        if not isinstance(value.type, ListType):
            self.refuse(node, f"an array of {kind_of_type(type_)} is not compiled")
        return owner.lists.as_array(node, value)

    def _log(self, node: ast.AST, row: LibraryFunction, args: list[Operand]) -> Operand:
        if len(args) == 2:
            top, bottom = (self._operator(node, row, [arg]) for arg in args)
            return self._owner.apply_binary(node, ast.Div(), top, bottom)
        self._counted(node, args, 1)
        return self._operator(node, row, args)

    def _extreme(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        """The least or the largest of some numbers, or of a list."""
        if len(args) == 1 and isinstance(args[0].type, ListType):
            return self._written(node, row, args)
        if len(args) < 2:
            self.refuse(node, f"`{row.name}` is compiled for two or more numbers")
        numbers = [self._number(node, row, arg) for arg in args]
        where, op = self._owner.text.where(node), _EXTREMES[row.rule]
        core = reduce(
            lambda a, b: Prim(where, op, (a, b)), [each.core for each in numbers]
        )
        return Operand(core, INT if {n.type for n in numbers} == {INT} else FLOAT)

    def _copy(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        if not isinstance(args[0].type, ArrayType):
            self.refuse(node, f"`copy` of {kind_of_type(args[0].type)} is no array")
        return self._owner.wholes.copy(node, args[0])

    def _sum(self, node: ast.AST, row: LibraryFunction, args: list[Operand]) -> Operand:
        (value,) = args
        if isinstance(value.type, ListType):
            return self._written(node, row, args)
        if not row.is_of_arrays and getattr(value.type, "rank", 0) > 1:  # of the rows
            return self._by_axis(node, METHODS[row.name], value, 0, False)
        return self._owner.wholes.sum(node, value)

    def _full(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        """`np.zeros(n)`, `np.full(n, x)`, `np.zeros_like(a)`: full of one value."""
        owner, number = self._owner, _FILLED.get(row.name.removesuffix("_like"))
        if number is None:
            given = owner.as_number(node, args[1])
            if given.type is INT and row.name == "full":
                self.refuse(
                    node,
                    "`np.full` of an int makes an array of ints; write it as a "
                    "float, or `float(x)`",
                )
            value = given.core
        else:
            value = Const(owner.text.where(node), number)
        arrays = owner.arrays
        make = arrays.new if row.rule == "full" else arrays.new_like
        return make(node, args[0], value)

    def _shaped(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        """`a.ravel()`, `a.flatten()`, `a.reshape(n, m)`."""
        owner = self._owner
        if not args or not isinstance(args[0].type, ArrayType):
            self.refuse(node, f"`{row.name}` is of an array")
        if row.rule == "reshape":
            return owner.arrays.reshaped(node, args[0], args[1:])
        made = owner.wholes.copy(node, self._flat(node, args[0]))
        return replace(made, fresh=row.rule == "flatten")

    def _float(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        return replace(self._number(node, row, args[0]), type=FLOAT)

    def _floor(
        self, node: ast.AST, row: LibraryFunction, args: list[Operand]
    ) -> Operand:
        arithmetic, where = self._owner.arithmetic, self._owner.text.where(node)
        number = self._number(node, row, args[0]).core
        return Operand(arithmetic.rounded_down(where, number), INT)

    def _pow(self, node: ast.AST, row: LibraryFunction, args: list[Operand]) -> Operand:
        left, right = (self._number(node, row, arg) for arg in args)
        where = self._owner.text.where(node)
        return self._owner.arithmetic.power(where, left, right)


_Rule = Callable[[LibraryCalls, ast.AST, LibraryFunction, list[Operand]], Operand]

_LIBRARY_RULES: dict[str, _Rule] = {
    "array": LibraryCalls._of_list,
    "copy": LibraryCalls._copy,
    "dot": lambda self, node, row, args: self._owner.arrays.product(node, *args),
    "flatten": LibraryCalls._shaped,
    "float": LibraryCalls._float,
    "rounded_down": LibraryCalls._floor,
    "full": LibraryCalls._full,
    "full_like": LibraryCalls._full,
    "len": lambda self, node, row, args: self._owner.arrays.length(node, args[0]),
    "list": LibraryCalls._of_list,
    "log": LibraryCalls._log,
    "max": LibraryCalls._extreme,
    "min": LibraryCalls._extreme,
    "pow": LibraryCalls._pow,
    "power": lambda self, node, row, args: self._owner.apply_binary(
        node, ast.Pow(), *args
    ),
    "range": lambda self, node, row, args: self.refuse(
        node, "`range` is compiled in the head of a `for` only"
    ),
    "ravel": LibraryCalls._shaped,
    "reshape": LibraryCalls._shaped,
    "sum": LibraryCalls._sum,
}
"""What is compiled by the translator itself."""

_EXTREMES = {"max": MAXIMUM, "min": MINIMUM}
