"""Advice for statements that are not compiled."""

import ast


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
