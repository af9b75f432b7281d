"""Python's arithmetic in the core language: with its faults, and ints that stay exact.

Python raises where IEEE arithmetic goes on with an infinity or a NaN; a compiled
function stops there too, with the line at fault. An int is a double, so that one above
2**53 would be rounded in silence: it is refused as soon as it is computed.
"""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass

from retape.engines.vlad.language._builtins import PYTHON_FAULTS
from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import (
    ADD,
    AT_LEAST,
    AT_MOST,
    CHECK_INTEGER,
    DIVIDE,
    EQUAL,
    EXPT,
    FLOOR,
    FLOOR_DIVIDE,
    GREATER,
    IS_FINITE,
    IS_NEGATIVE,
    IS_ZERO,
    LESS,
    MULTIPLY,
    NEGATE,
    OPERATORS,
    REMAINDER,
    SUBTRACT,
)
from retape.engines.vlad.python.read._types import BOOL, FLOAT, INT, UNKNOWN, Type
from retape.engines.vlad.python.terms._core_builder import CoreBuilder


@dataclass(frozen=True, slots=True)
class Operand:
    """A term, and what is known of its value.

    Attributes:
        fresh: Whether the arrays in it are nobody else's, nor the same.
        fresh_items: If a tuple was written out, whether that holds for each item.
        ways: If a function was called, the types that its ways out give.
    """

    core: Core
    type: Type
    fresh: bool = False
    fresh_items: tuple[bool, ...] = ()
    ways: tuple[Type, ...] = ()


LARGEST_INT = 2**53


RAISED = "an exception"
"""The fault of an exception that a program raises."""

_NEGATIVE_POWER = (
    "a negative power of an int, which is a float; write the base as a float"
)


def fault(where: Where, kind: str) -> Core:
    """A term that stops the program."""
    return Prim(where, f"fault:{PYTHON_FAULTS.index(kind)}", ())


class Arithmetic:
    """Terms of operators and functions of numbers."""

    def __init__(self, build: CoreBuilder) -> None:
        self._build = build

    def number(self, where: Where, operand: Operand) -> Operand:
        """A bool as the int that it is."""
        if operand.type is BOOL:
            return Operand(
                If(where, operand.core, Const(where, 1.0), Const(where, 0.0)), INT
            )
        return operand

    def binary(
        self, where: Where, op: ast.operator, left: Operand, right: Operand
    ) -> Operand | None:
        """An operator of two numbers; `None` for one that is not compiled."""
        a, s, b, t = left.core, left.type, right.core, right.type
        if s is UNKNOWN or t is UNKNOWN:  # of a recursion not yet seen to return
            return Operand(Const(where, ()), UNKNOWN)
        both = INT if s is INT and t is INT else FLOAT
        match op:
            case ast.Add() | ast.Sub() | ast.Mult():
                name = {ast.Add: ADD, ast.Sub: SUBTRACT, ast.Mult: MULTIPLY}[type(op)]
                core: Core = Prim(where, name, (a, b))
                if name == MULTIPLY:
                    core = self._one_zero(core, both)
                return Operand(self.exact(where, core, both), both)
            case ast.Div():
                return Operand(self._divided(where, DIVIDE, a, b), FLOAT)
            case ast.FloorDiv():
                core = self._divided(where, FLOOR_DIVIDE, a, b)
                return Operand(self._one_zero(core, both), both)
            case ast.Mod():
                core = self._divided(where, REMAINDER, a, b)
                return Operand(self._one_zero(core, both), both)
            case ast.Pow():
                return self.power(where, left, right)
        return None

    def _one_zero(self, core: Core, type_: Type) -> Core:
        """An int that is never -0.0, by which `atan2`, `1 / x` or a sign would tell."""
        if type_ is not INT:
            return core
        return Prim(core.where, ADD, (core, Const(core.where, 0.0)))

    def exact(self, where: Where, core: Core, type_: Type) -> Core:
        """An int that is refused if it is not below 2**53."""
        return Prim(where, CHECK_INTEGER, (core,)) if type_ is INT else core

    def _divided(self, where: Where, op: str, a: Core, b: Core) -> Core:
        if isinstance(b, Const) and b.value != 0.0:
            return Prim(where, op, (a, b))
        return self.named(
            where,
            (a, b),
            lambda x, y: If(
                where,
                Prim(where, IS_ZERO, (y,)),
                fault(where, "division by zero"),
                Prim(where, op, (x, y)),
            ),
        )

    def power(self, where: Where, left: Operand, right: Operand) -> Operand:
        a, s, b, t = left.core, left.type, right.core, right.type
        exponent = b.value if isinstance(b, Const) else None
        natural = isinstance(exponent, float) and exponent >= 0.0
        whole = s is INT and t is INT and natural
        if exponent == 2.0:
            type_ = INT if whole else FLOAT
            square = self.named(where, (a,), lambda x: Prim(where, MULTIPLY, (x, x)))
            return Operand(self.exact(where, square, type_), type_)
        if s is INT and t is INT and exponent is None:
            return Operand(self._power_of_int(where, a, b), INT)
        type_ = INT if whole else FLOAT
        core = self.finite(where, EXPT, (a, b))
        return Operand(self.exact(where, core, type_), type_)

    def _power_of_int(self, where: Where, a: Core, b: Core) -> Core:
        """An int to the power of one that only running tells."""

        def checked(x: Core, y: Core) -> Core:
            result = self.exact(where, self.finite(where, EXPT, (x, y)), INT)
            return If(
                where,
                Prim(where, IS_NEGATIVE, (y,)),
                fault(where, _NEGATIVE_POWER),
                result,
            )

        return self.named(where, (a, b), checked)

    def math(self, where: Where, op: str, arg: Core) -> Core:
        """A function of `math`: what is infinite or no number is a fault, as in Python.

        Python's rule: no number of a number, and an infinity of what is finite.
        """
        traits = OPERATORS[op].traits
        if not traits & (Trait.OF_FINITE | Trait.ENDLESS):
            return self.finite(where, op, (arg,))

        def checked(x: Core) -> Core:
            result = self._build.fresh("y")
            value = Var(where, result)
            wrong = fault(where, "math domain or range error")
            if traits & Trait.OF_FINITE:  # of infinities they are no numbers
                is_wrong = Prim(where, EQUAL, (x, x))
            else:  # infinite of infinity, of which minus infinity is no number
                is_wrong = Prim(where, LESS, (x, Const(where, math.inf)))
            failed = If(where, is_wrong, wrong, value)
            test = If(where, Prim(where, IS_FINITE, (value,)), value, failed)
            return self._build.let_var(where, result, Prim(where, op, (x,)), test)

        return self.named(where, (arg,), checked)

    def finite(self, where: Where, op: str, args: tuple[Core, ...]) -> Core:
        """A function whose result is finite where its operands are, or a fault."""

        def checked(*operands: Core) -> Core:
            result = self._build.fresh("y")
            value = Var(where, result)
            wrong = fault(where, "math domain or range error")
            for operand in operands:
                wrong = If(where, Prim(where, IS_FINITE, (operand,)), wrong, value)
            test = If(where, Prim(where, IS_FINITE, (value,)), value, wrong)
            return self._build.let_var(where, result, Prim(where, op, operands), test)

        return self.named(where, args, checked)

    def negative(self, where: Where, operand: Operand) -> Operand:
        if isinstance(operand.core, Const) and isinstance(operand.core.value, float):
            return Operand(
                Const(
                    where,
                    -operand.core.value + 0.0
                    if operand.type is INT
                    else -operand.core.value,
                ),
                operand.type,
            )
        if operand.type is INT:
            return Operand(
                Prim(where, SUBTRACT, (Const(where, 0.0), operand.core)), operand.type
            )
        return Operand(Prim(where, NEGATE, (operand.core,)), operand.type)

    def rounded_down(self, where: Where, core: Core) -> Core:
        return self.exact(where, self._one_zero(Prim(where, FLOOR, (core,)), INT), INT)

    def compare(self, where: Where, op: ast.cmpop, a: Core, b: Core) -> Core | None:
        """A comparison of two numbers; `None` for one that is not compiled."""
        names: dict[type[ast.cmpop], str] = {
            ast.Lt: LESS,
            ast.Gt: GREATER,
            ast.LtE: AT_MOST,
            ast.GtE: AT_LEAST,
            ast.Eq: EQUAL,
        }
        if isinstance(op, ast.NotEq):
            return self.inverse(where, Prim(where, EQUAL, (a, b)))
        name = names.get(type(op))
        return None if name is None else Prim(where, name, (a, b))

    def inverse(self, where: Where, core: Core) -> Core:
        if isinstance(core, Const) and isinstance(core.value, bool):
            return Const(where, not core.value)
        return If(where, core, Const(where, False), Const(where, True))

    def named(
        self, where: Where, args: tuple[Core, ...], body: Callable[..., Core]
    ) -> Core:
        """A term in which operands occur more than once: each has a name."""
        bound: list[tuple[str, Core]] = []
        operands: list[Core] = []
        for arg in args:
            if isinstance(arg, Const | Var):
                operands.append(arg)
                continue
            name = self._build.fresh("x")
            bound.append((name, arg))
            operands.append(Var(where, name))
        result = body(*operands)
        for name, arg in reversed(bound):
            result = self._build.let_var(where, name, arg, result)
        return result


def literal(where: Where, value: float | bool | int) -> Operand:
    """A constant; an int has to be one that a double holds.

    Raises:
        OverflowError: For an int that is above 2**53.
    """
    if isinstance(value, bool):
        return Operand(Const(where, value), BOOL)
    if isinstance(value, int):
        if abs(value) > LARGEST_INT:
            raise OverflowError
        return Operand(Const(where, float(value)), INT)
    return Operand(Const(where, value if value == value else math.nan), FLOAT)
