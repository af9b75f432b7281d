"""Advice for what is not compiled: expressions, statements, derivatives."""

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


def instead_of_statement(node: ast.stmt) -> str:
    match node:
        case ast.Try():
            return "`try` is not compiled; return a flag, or catch it in the caller"
        case ast.With():
            return "`with` is not compiled; do this outside of the compiled function"
        case ast.Expr():
            return (
                "an expression whose value is not used does nothing here; assign it, "
                "or remove it"
            )
        case ast.Global() | ast.Nonlocal():
            return "variables of other functions are not changed; return their values"
        case ast.Import() | ast.ImportFrom():
            return "imports stand at the top of the file"
        case ast.ClassDef():
            return "classes are not compiled; use tuples"
        case ast.Delete():
            return "`del` is not compiled; leave it out"
        case ast.Match():
            return "`match` is not compiled; use `if` and `elif`"
        case _:
            return f"`{type(node).__name__}` is not compiled; see the subset's page"
