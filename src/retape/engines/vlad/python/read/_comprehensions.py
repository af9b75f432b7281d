"""Comprehensions as functions: Python, too, runs each in a scope of its own."""

import ast

_MADE = "a comprehension's list"
"""A name that no program has."""


class Comprehension(ast.FunctionDef):
    """The function that a comprehension is; it is called once, where it stands."""


def as_function(node: ast.ListComp | ast.GeneratorExp) -> Comprehension:
    """What a comprehension does, as a function that fills a list and returns it.

    Examples:
        >>> tree = ast.parse("[x * y for x in xs if x > 0]", mode="eval")
        >>> print(ast.unparse(as_function(tree.body).body[1]))
        for x in xs:
            if x > 0:
                a comprehension's list.append(x * y)
    """
    known = getattr(node, "as_function", None)
    if known is not None:
        return known
    made = ast.Name(_MADE, ast.Load())
    add = ast.Call(ast.Attribute(made, "append", ast.Load()), [node.elt], [])
    body: ast.stmt = ast.Expr(add)
    for each in reversed(node.generators):
        for test in reversed(each.ifs):
            body = ast.If(test, [body], [])
        body = ast.For(each.target, each.iter, [body], [])
    begin = ast.Assign([ast.Name(_MADE, ast.Store())], ast.List([], ast.Load()))
    nothing = ast.arguments([], [], None, [], [], None, [])
    statements: list[ast.stmt] = [begin, body, ast.Return(made)]
    function = Comprehension("comprehension", nothing, statements, [], None, None)
    for each in ast.walk(function):
        if not hasattr(each, "lineno"):
            ast.copy_location(each, node)
    node.as_function = function  # type: ignore[union-attr]
    return function
