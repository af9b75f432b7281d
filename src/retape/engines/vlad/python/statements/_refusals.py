"""Advice for statements that are not compiled."""

import ast


def instead_of_statement(node: ast.stmt) -> str:
    match node:
        case ast.Try() | ast.Raise():
            return "exceptions are not compiled; return a flag, or use `assert`"
        case ast.With():
            return "`with` is not compiled; do this outside of the compiled function"
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return "printing is not compiled; return what is to be printed"
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
