"""Calls of functions of `math`, `numpy` and Python itself."""

import ast
from typing import TYPE_CHECKING, NoReturn

from retape.engines.vlad.language._core import Const, Core, If, Prim
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    ArrayType,
)
from retape.engines.vlad.python.terms._arithmetic import Operand

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions


class LibraryCalls:
    """Terms of calls of library functions."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    def call(
        self, node: ast.AST, known: tuple[str, str], args: list[Operand]
    ) -> Operand:
        """A function of a library, by the kind and the name of its row."""
        kind, name = known
        if any(t is UNKNOWN for _, t in args):
            return Const(self._owner.text.where(node), ()), UNKNOWN
        for _, type_ in args:
            if name not in ("len", "copy"):
                self._owner.refuse_ints(node, type_)
        match kind:
            case "math":
                return self._math(node, name, args)
            case "numpy":
                return self._numpy(node, name, args)
            case "array":
                return self._array(node, name, args)
        return self._builtin(node, name, args)

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
                return arithmetic.finite(where, "expt", cores), FLOAT
            case "atan2":
                self._counted(node, args, 2)
                return Prim(where, "atan", cores), FLOAT
            case "hypot":
                self._counted(node, args, 2)
                return arithmetic.hypotenuse(where, *cores), FLOAT
        self._counted(node, args, 1)
        core, type_ = numbers[0]
        match name:
            case "abs":
                return Prim(where, "abs", (core,)), type_
            case "float":
                return core, FLOAT
            case "bool":
                return arithmetic.inverse(where, Prim(where, "zero?", (core,))), BOOL
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
                return Prim(where, "atan", (core, Const(where, 1.0))), FLOAT
            case "isfinite":
                return Prim(where, "finite?", (core,)), BOOL
            case "isnan":

                def differs(x: Core) -> Core:
                    equal = Prim(where, "=", (x, x))
                    return If(where, equal, Const(where, False), Const(where, True))

                return arithmetic.named(where, (core,), differs), BOOL
            case "degrees":
                return Prim(where, "*", (core, Const(where, 57.29577951308232))), FLOAT
            case "radians":
                return Prim(
                    where, "*", (core, Const(where, 0.017453292519943295))
                ), FLOAT
        return self.refuse(node, f"`{name}` is not compiled")
