"""Advice for expressions that are not compiled."""

import ast


def instead_of_expression(node: ast.expr) -> str:
    match node:
        case ast.Set() | ast.DictComp() | ast.SetComp():
            return "sets are not compiled, nor are dicts whose keys running tells"
        case ast.JoinedStr():
            return 'a text is not a value here; print it, `print(f"...")`'
        case ast.GeneratorExp():
            return "generators are not compiled; write a list, `[... for ...]`"
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
