"""Calls of functions of `math`, `numpy` and Python itself."""

import ast
from dataclasses import replace

from retape.engines.vlad.language._core import Const, Core, If, Prim
from retape.engines.vlad.operators._table import (
    ABS,
    ATAN,
    EQUAL,
    EXPT,
    IS_FINITE,
    IS_ZERO,
    MULTIPLY,
)
from retape.engines.vlad.python.expressions._by_axis import (
    axis_of,
    by_axis,
    is_kept,
)
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library._table import (
    ALONG_AXIS,
    BY_ITEM,
    OF_ALL,
    OVER_AXIS,
    VIEWS,
    WRITTEN,
)
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
        by_place = name in OVER_AXIS | ALONG_AXIS and kind == "array" and len(args) == 2
        if keywords or by_place:
            found = self._along(node, known, args, keywords)
            if found is not None:
                return found
        if kind in ("array", "numpy"):  # which makes an array of a list
            args = [self._as_array(node, arg) for arg in args]
        if any(t is UNKNOWN for _, t in args):
            return Const(self._owner.text.where(node), ()), UNKNOWN
        for _, type_ in args:
            if name not in ("len", "copy", "where"):
                self._owner.refuse_ints(node, type_)
        if kind == "array" or name in BY_ITEM:
            found = self._written(node, name, args)
            if found is not None:
                return found
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
        owner, type_ = self._owner, value[1]
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
            if not isinstance(value[1], ListType):
                self.refuse(node, f"`list` of {kind_of_type(type_)} is not compiled")
            return owner.lists.copied(node, value)
        if isinstance(type_, ArrayType):
            owner.fresh = False
            return value if name == "asarray" else owner.wholes.copy(node, value)
        if not isinstance(value[1], ListType):
            self.refuse(node, f"an array of {kind_of_type(type_)} is not compiled")
        return owner.lists.as_array(node, value)

    def _as_array(self, node: ast.AST, operand: Operand) -> Operand:
        if not isinstance(operand[1], ListType):
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
        is_array = bool(args) and isinstance(args[0][1], ArrayType)
        has_axis = kind == "array" and name in OVER_AXIS | ALONG_AXIS and is_array
        axis = keywords.pop("axis", None)
        if has_axis and len(args) == 2:
            axis = args.pop()
        kept = keywords.pop("keepdims", None)
        if keywords or not has_axis:
            self.refuse(
                node,
                "of the keyword arguments of library functions `axis` and `keepdims` "
                "are compiled, with constants, of "
                f"{', '.join(sorted(OVER_AXIS | ALONG_AXIS))}",
            )
        owner.refuse_ints(node, args[0][1])
        at = None if axis is None else axis_of(owner, node, args[0], axis)
        if at is None:
            if is_kept(owner, node, kept):
                self.refuse(node, "`keepdims` is compiled with an `axis`")
            return None
        if getattr(args[0][1], "rank", 0) == 1:
            if is_kept(owner, node, kept):
                self.refuse(node, "`keepdims` is compiled for two dimensions or more")
            return None
        whether = is_kept(owner, node, kept)
        return by_axis(owner, node, name, args[0], at, kept=whether)

    def _written(self, node: ast.AST, name: str, args: list[Operand]) -> Operand | None:
        """A function that is written in the language; `None` if there is none."""
        owner = self._owner
        if name in BY_ITEM:
            if not any(isinstance(type_, ArrayType) for _, type_ in args):
                return None
            self._counted(node, args, 3 if name in ("clip", "where") else 2)
            if name == "where":
                self._chosen(node, args)
            return owner.wholes.by_item(node, BY_ITEM[name], args)
        rows = WRITTEN.get(name)
        if rows is None:
            return None
        if args and name in OF_ALL and isinstance(args[0][1], ArrayType):
            args = [self._flat(node, args[0]), *args[1:]]
        kinds = "".join(_kind(type_) for _, type_ in args)
        function = rows.get(kinds)
        if function is None:
            given = " and ".join(kind_of_type(type_) for _, type_ in args) or "nothing"
            self.refuse(node, f"`{name}` of {given} is not compiled; write a loop")
        result = owner.written(node, function, args)
        if name in VIEWS:
            owner.fresh = False
        if name == "arange" and set(kinds) == {"i"}:
            result = result[0], ArrayType(1, INT)
        return result

    def _flat(self, node: ast.AST, array: Operand) -> Operand:
        """All items of an array, one row after another."""
        core, type_ = array
        assert isinstance(type_, ArrayType)
        where, build = self._owner.text.where(node), self._owner.build
        return items_of(build, where, core, type_.rank), replace(type_, rank=1)

    def _chosen(self, node: ast.AST, args: list[Operand]) -> None:
        """Refuse what `np.where` would make another type of array of."""
        if not _is_mask(args[0][1]):
            self.refuse(node, "`np.where` takes a comparison of arrays first")
        for _, type_ in args[1:]:
            self._owner.refuse_ints(node, type_)
        if all(type_ in (INT, BOOL) for _, type_ in args[1:]):
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
            (top, _), (bottom, _) = (self._math(node, "log", [a]) for a in args)
            return self._owner.arithmetic.binary(
                self._owner.text.where(node), ast.Div(), (top, FLOAT), (bottom, FLOAT)
            ) or (top, FLOAT)
        self._counted(node, args, 1)
        core, type_ = self._owner.as_number(node, args[0])
        where = self._owner.text.where(node)
        if name in ("sin", "cos", "tanh", "erf", "abs") and type_ is INT:
            return Prim(where, name, (core,)), FLOAT
        if name in ("tanh", "erf", "abs"):
            return Prim(where, name, (core,)), FLOAT
        return self._owner.arithmetic.math(where, name, core), FLOAT

    def _numpy(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        self._counted(node, args, 1)
        if isinstance(args[0][1], ArrayType):
            return self._owner.wholes.unary(node, name, args[0])
        core, type_ = self._real(node, args[0])
        result = INT if name == "abs" and type_ is INT else FLOAT
        return Prim(self._owner.text.where(node), name, (core,)), result

    def _real(self, node: ast.AST, operand: Operand) -> Operand:
        """A number that is no bool, with which these functions do something else."""
        if operand[1] is BOOL:
            self.refuse(
                node,
                "of a bool this function gives a bool, or a number in half precision; "
                "write `int(x)` or `float(x)`",
            )
        return self._owner.as_number(node, operand)

    def _array(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        match name:
            case "zeros_like" | "empty_like" | "ones_like" | "full_like":
                self._counted(node, args, 2 if name == "full_like" else 1)
                value = Const(where, 1.0 if name == "ones_like" else 0.0)
                if name == "full_like":
                    value, _ = owner.as_number(node, args[1])
                return owner.wholes.full(node, args[0], value)
            case "zeros" | "empty" | "ones":
                self._counted(node, args, 1)
                value = Const(where, 1.0 if name == "ones" else 0.0)
                return owner.arrays.new(node, args[0], value)
            case "full":
                self._counted(node, args, 2)
                value, type_ = owner.as_number(node, args[1])
                if type_ is INT:
                    self.refuse(
                        node,
                        "`np.full` of an int makes an array of ints; write it as a "
                        "float, or `float(x)`",
                    )
                return owner.arrays.new(node, args[0], value)
            case "dot":
                self._counted(node, args, 2)
                return owner.products.product(node, args[0], args[1])
            case "sum":
                self._counted(node, args, 1)
                return owner.wholes.sum(node, args[0])
            case "copy":
                self._counted(node, args, 1)
                return owner.wholes.copy(node, args[0])
            case "ravel" | "flatten":
                self._counted(node, args, 1)
                if not isinstance(args[0][1], ArrayType):
                    self.refuse(node, f"`{name}` is of an array")
                made = owner.wholes.copy(node, self._flat(node, args[0]))
                owner.fresh = name == "flatten"
                return made
            case "reshape":
                if not args or not isinstance(args[0][1], ArrayType):
                    self.refuse(node, "`reshape` is of an array")
                return owner.arrays.reshaped(node, args[0], args[1:])
            case "power":
                self._counted(node, args, 2)
                return owner.apply_binary(node, ast.Pow(), args[0], args[1])
            case "arctan":
                return self._builtin(node, "atan", [self._real(node, args[0])])
        return self._builtin(node, "atan2", [self._real(node, arg) for arg in args])

    def _builtin(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        if name == "len":
            self._counted(node, args, 1)
            return owner.arrays.length(node, args[0])
        if name == "sum":
            self._counted(node, args, 1)
            return owner.wholes.sum(node, args[0])
        if name == "range":
            self.refuse(node, "`range` is compiled in the head of a `for` only")
        is_strict = name in ("minimum", "maximum", "min", "max")
        as_number = self._real if is_strict else owner.as_number
        numbers = [as_number(node, arg) for arg in args]
        cores = tuple(core for core, _ in numbers)
        types = [t for _, t in numbers]
        arithmetic = owner.arithmetic
        match name:
            case "minimum" | "maximum":
                self._counted(node, args, 2)
                core = arithmetic.smaller_or_nan(where, name[:3], *cores)
                return core, INT if set(types) == {INT} else FLOAT
            case "min" | "max":
                if len(cores) < 2:
                    self.refuse(node, f"`{name}` is compiled for two or more numbers")
                result = cores[0]
                for core in cores[1:]:
                    result = Prim(where, name, (result, core))
                return result, INT if set(types) == {INT} else FLOAT
            case "pow" | "math.pow":
                self._counted(node, args, 2)
                if name == "pow":
                    return arithmetic.power(where, numbers[0], numbers[1])
                return arithmetic.finite(where, EXPT, cores), FLOAT
            case "atan2":
                self._counted(node, args, 2)
                return Prim(where, ATAN, cores), FLOAT
            case "hypot":
                self._counted(node, args, 2)
                return arithmetic.hypotenuse(where, *cores), FLOAT
        self._counted(node, args, 1)
        core, type_ = numbers[0]
        match name:
            case "abs":
                return Prim(where, ABS, (core,)), type_
            case "float":
                return core, FLOAT
            case "bool":
                return arithmetic.inverse(where, Prim(where, IS_ZERO, (core,))), BOOL
            case "int":
                return (
                    (core, INT)
                    if type_ is INT
                    else (
                        arithmetic.truncated(where, core),
                        INT,
                    )
                )
            case "floor":
                return arithmetic.rounded_down(where, core), INT
            case "ceil":
                return arithmetic.ceiling(where, core), INT
            case "atan":
                return Prim(where, ATAN, (core, Const(where, 1.0))), FLOAT
            case "isfinite":
                return Prim(where, IS_FINITE, (core,)), BOOL
            case "isnan":

                def differs(x: Core) -> Core:
                    equal = Prim(where, EQUAL, (x, x))
                    return If(where, equal, Const(where, False), Const(where, True))

                return arithmetic.named(where, (core,), differs), BOOL
            case "degrees":
                return Prim(
                    where, MULTIPLY, (core, Const(where, 57.29577951308232))
                ), FLOAT
            case "radians":
                return Prim(
                    where, MULTIPLY, (core, Const(where, 0.017453292519943295))
                ), FLOAT
        return self.refuse(node, f"`{name}` is not compiled")
