"""Partials of operators, which are texts of the table, as expressions.

    by a of `expt`:   0.0 if b == 0.0 else b * expt(a, b - 1.0)

`expression` writes one for whoever says how its parts are written: the interpreters as
operations on any reals, the runtime's C in the same way, typed code as C on doubles.
"""

import ast
import re
from collections.abc import Sequence
from typing import Protocol

from retape.engines.vlad.operators._row import ROUNDED, Operator, parsed
from retape.engines.vlad.operators._table import OPERATORS

_INFIX = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARED = {ast.Eq: "==", ast.Lt: "<", ast.Gt: ">"}
_CALLED = {row.called: row for row in OPERATORS.values()}


class Style(Protocol):
    """How parts of an expression are written."""

    def number(self, text: str) -> str:
        """A constant."""
        ...

    def of(self, row: Operator, args: Sequence[str]) -> str:
        """An operator of the table."""
        ...

    def rounded(self, arg: str) -> str:
        """The nearest integer, a constant to derivatives."""
        ...

    def choice(self, test: str, then: str, other: str) -> str:
        """One of two expressions."""
        ...

    def primal(self, name: str) -> str:
        """A variable where it is compared."""
        ...


def expression(text: str, style: Style) -> str:
    """A partial in a style."""
    return _written(parsed(text), style)


def _written(node: ast.expr, style: Style) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return style.number(repr(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return style.number(f"-{value!r}")
        case ast.BinOp(left=left, op=op, right=right):
            args = _written(left, style), _written(right, style)
            return style.of(OPERATORS[_INFIX[type(op)]], args)
        case ast.IfExp(test=test, body=body, orelse=other):
            arms = _written(body, style), _written(other, style)
            return style.choice(_test(test, style), *arms)
        case ast.Call(func=ast.Name(id=name), args=[arg]) if name == ROUNDED:
            return style.rounded(_written(arg, style))
        case ast.Call(func=ast.Name(id=name), args=args):
            return style.of(_CALLED[name], [_written(arg, style) for arg in args])
    raise AssertionError(f"no partial has {ast.unparse(node)}")


def _test(node: ast.expr, style: Style) -> str:
    match node:
        case ast.Compare(left=ast.Name(id=a), ops=[op], comparators=[ast.Constant(b)]):
            return f"{style.primal(a)} {_COMPARED[type(op)]} {b!r}"
        case ast.Compare(left=ast.Name(id=a), ops=[op], comparators=[ast.Name(id=b)]):
            return f"{style.primal(a)} {_COMPARED[type(op)]} {style.primal(b)}"
    raise AssertionError(f"no partial asks {ast.unparse(node)}")


_LETTER = re.compile(r"\b([abgpy])\b")


def filled(text: str, values: dict[str, str]) -> str:
    """An expression of C, with the variables for its letters.

    Examples:
        >>> filled("(1.0 / b) * g", {"b": "x", "g": "dx"})
        '(1.0 / x) * dx'
    """
    return _LETTER.sub(lambda found: values[found[1]], text)


def _enclosed(text: str) -> str:
    return f"({text})" if " " in text else text


class _OnDoubles:
    """An expression of C on doubles."""

    def number(self, text: str) -> str:
        return text

    def of(self, row: Operator, args: Sequence[str]) -> str:
        return filled(row.c, dict(zip("ab", map(_enclosed, args), strict=False)))

    def rounded(self, arg: str) -> str:
        return f"{ROUNDED}({arg})"

    def choice(self, test: str, then: str, other: str) -> str:
        return f"({test} ? {then} : {other})"

    def primal(self, name: str) -> str:
        return name


def on_doubles(text: str) -> str:
    """A partial as an expression of C on doubles, in which it may be a factor.

    Examples:
        >>> on_doubles("0.0 if b == 0.0 else b * expt(a, b - 1.0)")
        '(b == 0.0 ? 0.0 : b * (pow(a, (b - 1.0))))'
    """
    return expression(text, _OnDoubles())
