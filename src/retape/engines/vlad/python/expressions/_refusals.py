"""Advice for expressions that are not compiled."""

import ast


def instead_of_expression(node: ast.expr) -> str:
    match node:
        case ast.List() | ast.ListComp():
            return (
                "lists are not compiled; use a tuple for a few values, or an array "
                "from `numpy.zeros(n)` that a loop fills"
            )
        case ast.Dict() | ast.Set() | ast.DictComp() | ast.SetComp():
            return "dicts and sets are not compiled; use tuples or arrays"
        case ast.JoinedStr():
            return "strings are not compiled; print outside of the compiled function"
        case ast.GeneratorExp():
            return "generators are not compiled; write a loop"
        case ast.NamedExpr():
            return "`:=` is not compiled; assign the variable in a line of its own"
        case ast.Starred():
            return "`*` is not compiled here; write the items one by one"
        case _:
            return f"`{type(node).__name__}` is not compiled; see the subset's page"


def instead_of_derivative(name: str) -> str:
    return (
        f"`native.{name}` is not compiled itself; make the derivative outside of the "
        "function, as `df = native.grad(f)`, and call `df` here"
    )
