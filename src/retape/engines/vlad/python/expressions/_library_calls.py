"""Calls of functions of `math`, `numpy` and Python itself."""

import ast
from dataclasses import replace

from retape.engines.vlad.language._core import Const, Core, Prim
from retape.engines.vlad.python.expressions._by_axis import (
    axis_of,
    by_axis,
    is_kept,
)
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library._table import ARRAY_FUNCTIONS, WITH_AXIS
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    ArrayType,
    ListType,
    Scalar,
    TupleType,
    Type,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import items_of
from retape.engines.vlad.python.terms._number_functions import NUMBER_FUNCTIONS

_FILLED = {"zeros": 0.0, "empty": 0.0, "ones": 1.0, "full": None}
"""Functions that make arrays full of one value, which the last one is given."""

_SURE = ("tanh", "erf", "abs")
"""Functions of `math` that have a value for every number."""

_SURE_OF_INTS = (*_SURE, "sin", "cos")


def _kind(type_: Type) -> str:
    """The letter of an argument's type in the table of written functions."""
    if isinstance(type_, ArrayType):
        return str(type_.rank) if type_.item is FLOAT else "?"
    return {INT: "i", FLOAT: "n"}.get(type_, "?") if isinstance(type_, Scalar) else "?"


def _is_mask(type_: Type) -> bool:
    return isinstance(type_, ArrayType) and type_.item is BOOL


class LibraryCalls(Terms):
    """Terms of calls of library functions."""

    def call(
        self,
        node: ast.AST,
        known: tuple[str, str],
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand:
        """A function of a library, by the kind and the name of its row."""
        (kind, name), args, keywords = known, list(args), dict(keywords)
        by_place = name in WITH_AXIS and kind == "array" and len(args) == 2
        if keywords or by_place:
            found = self._along(node, known, args, keywords)
            if found is not None:
                return found
        if kind in ("array", "numpy"):  # which makes an array of a list
            args = [self._as_array(node, arg) for arg in args]
        if any(each.type is UNKNOWN for each in args):
            return Operand(Const(self._owner.text.where(node), ()), UNKNOWN)
        for each in args:
            if name not in ("len", "copy", "where"):
                self._owner.refuse_ints(node, each.type)
        match kind:
            case "math":
                return self._math(node, name, args)
            case "numpy":
                return self._numpy(node, name, args)
            case "array":
                return self._array(node, name, args)
        return self._builtin(node, name, args)

    def of_list(self, node: ast.AST, name: str, value: Operand) -> Operand:
        """`sum`, `min`, `max`, `list`, `np.array` or `np.asarray` of one value."""
        owner, type_ = self._owner, value.type
        if type_ is UNKNOWN:
            return value
        if name in ("sum", "min", "max"):
            if isinstance(type_, ListType):
                return owner.lists.of_all(node, name, value)
            return self.call(node, ("builtin", name), [value], {})
        if isinstance(type_, TupleType):
            value = owner.lists.of_tuple(node, value)
        if name == "list":
            if isinstance(type_, ArrayType) and type_.rank == 1:
                return owner.lists.of_array(node, value)
            if not isinstance(value.type, ListType):
                self.refuse(node, f"`list` of {kind_of_type(type_)} is not compiled")
            return owner.lists.copied(node, value)
        if isinstance(type_, ArrayType):
            if name == "asarray":
                return replace(value, fresh=False)
            return owner.wholes.copy(node, value)
        if not isinstance(value.type, ListType):
            self.refuse(node, f"an array of {kind_of_type(type_)} is not compiled")
        return owner.lists.as_array(node, value)

    def _as_array(self, node: ast.AST, operand: Operand) -> Operand:
        if not isinstance(operand.type, ListType):
            return operand
        return self._owner.lists.as_array(node, operand)

    def _along(
        self,
        node: ast.AST,
        known: tuple[str, str],
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand | None:
        """A function along an axis; `None` for all of an array."""
        owner, (kind, name) = self._owner, known
        is_array = bool(args) and isinstance(args[0].type, ArrayType)
        has_axis = kind == "array" and name in WITH_AXIS and is_array
        axis = keywords.pop("axis", None)
        if has_axis and len(args) == 2:
            axis = args.pop()
        kept = keywords.pop("keepdims", None)
        if keywords or not has_axis:
            self.refuse(
                node,
                "of the keyword arguments of library functions `axis` and `keepdims` "
                "are compiled, with constants, of "
                f"{', '.join(sorted(WITH_AXIS))}",
            )
        owner.refuse_ints(node, args[0].type)
        at = None if axis is None else axis_of(owner, node, args[0], axis)
        if at is None:
            if is_kept(owner, node, kept):
                self.refuse(node, "`keepdims` is compiled with an `axis`")
            return None
        if getattr(args[0].type, "rank", 0) == 1:
            if is_kept(owner, node, kept):
                self.refuse(node, "`keepdims` is compiled for two dimensions or more")
            return None
        whether = is_kept(owner, node, kept)
        return by_axis(owner, node, name, args[0], at, kept=whether)

    def _written(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        """A function that is written in the language."""
        owner, row = self._owner, ARRAY_FUNCTIONS[name]
        if args and row.makes and isinstance(args[0].type, ArrayType):
            args = [self._flat(node, args[0]), *args[1:]]
        kinds = "".join(_kind(each.type) for each in args)
        function = row.texts.get(kinds)
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

    def _by_item(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        """A function of numbers, item by item where there is an array."""
        function = ARRAY_FUNCTIONS[name].by_item
        if name == "where":
            self._chosen(node, args)
        if any(isinstance(each.type, ArrayType) for each in args):
            return self._owner.wholes.by_item(node, function, args)
        numbers = [self._real(node, arg) for arg in args]
        if name in NUMBER_FUNCTIONS:
            return self._of_numbers(node, name, numbers)
        return self._owner.written(node, function, numbers)

    def _flat(self, node: ast.AST, array: Operand) -> Operand:
        """All items of an array, one row after another."""
        assert isinstance(array.type, ArrayType)
        where, build = self._owner.text.where(node), self._owner.build
        return Operand(
            items_of(build, where, array.core, array.type.rank),
            replace(array.type, rank=1),
        )

    def _chosen(self, node: ast.AST, args: list[Operand]) -> None:
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

    def _counted(self, node: ast.AST, args: list[Operand], *counts: int) -> None:
        if len(args) not in counts:
            wanted = " or ".join(str(count) for count in counts)
            self.refuse(node, f"{wanted} arguments are compiled here, not {len(args)}")

    def _math(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        if name == "log" and len(args) == 2:
            top, bottom = (self._math(node, "log", [arg]) for arg in args)
            return self._owner.apply_binary(node, ast.Div(), top, bottom)
        self._counted(node, args, 1)
        operand = self._owner.as_number(node, args[0])
        where = self._owner.text.where(node)
        if name in (_SURE_OF_INTS if operand.type is INT else _SURE):
            return Operand(Prim(where, name, (operand.core,)), FLOAT)
        return Operand(self._owner.arithmetic.math(where, name, operand.core), FLOAT)

    def _numpy(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        self._counted(node, args, 1)
        if isinstance(args[0].type, ArrayType):
            return self._owner.wholes.unary(node, name, args[0])
        operand = self._real(node, args[0])
        result = INT if name == "abs" and operand.type is INT else FLOAT
        return Operand(
            Prim(self._owner.text.where(node), name, (operand.core,)), result
        )

    def _real(self, node: ast.AST, operand: Operand) -> Operand:
        """A number that is no bool, with which these functions do something else."""
        if operand.type is BOOL:
            self.refuse(
                node,
                "of a bool this function gives a bool, or a number in half precision; "
                "write `int(x)` or `float(x)`",
            )
        return self._owner.as_number(node, operand)

    def _array(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        owner, row = self._owner, ARRAY_FUNCTIONS[name]
        if row.count is not None:
            self._counted(node, args, row.count)
        if row.by_item is not None:
            return self._by_item(node, name, args)
        if row.texts:
            return self._written(node, name, args)
        if name.removesuffix("_like") in _FILLED:
            return self._full(node, name, args)
        match name:
            case "dot":
                return owner.products.product(node, args[0], args[1])
            case "power":
                return owner.apply_binary(node, ast.Pow(), args[0], args[1])
            case "sum":
                return owner.wholes.sum(node, args[0])
            case "copy":
                return owner.wholes.copy(node, args[0])
            case "ravel" | "flatten" | "reshape":
                if not args or not isinstance(args[0].type, ArrayType):
                    self.refuse(node, f"`{name}` is of an array")
                if name == "reshape":
                    return owner.arrays.reshaped(node, args[0], args[1:])
                made = owner.wholes.copy(node, self._flat(node, args[0]))
                return replace(made, fresh=name == "flatten")
        return self._of_numbers(node, name, args)

    def _full(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        """`np.zeros(n)`, `np.full(n, x)`, `np.zeros_like(a)`: full of one value."""
        owner, number = self._owner, _FILLED[name.removesuffix("_like")]
        value: Core = Const(owner.text.where(node), number)
        if number is None:
            given = owner.as_number(node, args[1])
            value = given.core
            if given.type is INT and name == "full":
                self.refuse(
                    node,
                    "`np.full` of an int makes an array of ints; write it as a "
                    "float, or `float(x)`",
                )
        make = owner.wholes.full if name.endswith("_like") else owner.arrays.new
        return make(node, args[0], value)

    def _builtin(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        match name:
            case "len":
                self._counted(node, args, 1)
                return owner.arrays.length(node, args[0])
            case "sum":
                self._counted(node, args, 1)
                return owner.wholes.sum(node, args[0])
            case "range":
                self.refuse(node, "`range` is compiled in the head of a `for` only")
            case "pow":
                self._counted(node, args, 2)
                left, right = (owner.as_number(node, arg) for arg in args)
                return owner.arithmetic.power(where, left, right)
            case "int":
                self._counted(node, args, 1)
                number = owner.as_number(node, args[0])
                if number.type is INT:
                    return number
                return Operand(owner.arithmetic.truncated(where, number.core), INT)
        return self._of_numbers(node, name, args)

    def _of_numbers(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        """A function of numbers, by its row."""
        owner, row = self._owner, NUMBER_FUNCTIONS.get(name)
        if row is None:
            self.refuse(node, f"`{name}` is not compiled")
        as_number = owner.as_number if row.takes_bools else self._real
        numbers = [as_number(node, arg) for arg in args]
        if row.count is not None:
            self._counted(node, args, row.count)
        elif len(args) < 2:
            self.refuse(node, f"`{name}` is compiled for two or more numbers")
        cores = (each.core for each in numbers)
        made = row.make(owner.arithmetic, owner.text.where(node), *cores)
        return Operand(made, row.type_of({each.type for each in numbers}))
