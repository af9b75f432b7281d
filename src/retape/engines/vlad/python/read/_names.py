"""Names in a function: which are assigned, which are read, which a closure takes."""

import ast
from collections.abc import Iterable, Iterator

from retape.engines.vlad.python.read._source import FunctionNode

InnerDefinition = ast.FunctionDef | ast.Lambda


def assigned(nodes: Iterable[ast.AST]) -> list[str]:
    """The variables that statements assign, items of arrays included, in order."""
    found: dict[str, None] = {}
    for node in _own(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name):
                found[node.value.id] = None
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = None
    return list(found)


def reads(node: FunctionNode) -> list[str]:
    """The names that a function reads and does not bind, in order."""
    own = {*parameters(node), *assigned(body_of(node))}
    found: dict[str, None] = {}
    for each in _own(body_of(node)):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            found[each.id] = None
        elif isinstance(each, InnerDefinition):
            found.update(dict.fromkeys(reads(each)))
    return [name for name in found if name not in own]


def captured(node: FunctionNode) -> dict[str, InnerDefinition]:
    """The variables of a function that functions inside it read, with one of those."""
    found: dict[str, InnerDefinition] = {}
    for each in _own(body_of(node)):
        if isinstance(each, InnerDefinition):
            for name in reads(each):
                found.setdefault(name, each)
    return found


def changes(node: FunctionNode) -> dict[str, int]:
    """Count the bindings of each variable of a function: in a loop, twice."""
    counts = dict.fromkeys(parameters(node), 1)
    stack: list[tuple[ast.AST, int]] = [(each, 1) for each in body_of(node)]
    while stack:
        top, times = stack.pop()
        if isinstance(top, ast.Name) and isinstance(top.ctx, ast.Store):
            counts[top.id] = counts.get(top.id, 0) + times
        if isinstance(top, ast.FunctionDef):
            counts[top.name] = counts.get(top.name, 0) + times
        if isinstance(top, ast.AugAssign) and isinstance(top.target, ast.Name):
            counts[top.target.id] = counts.get(top.target.id, 0) + 1
        if isinstance(top, InnerDefinition):
            continue
        inner = 2 if isinstance(top, ast.For | ast.While) else times
        stack.extend((each, inner) for each in ast.iter_child_nodes(top))
    return counts


def parameters(node: FunctionNode) -> list[str]:
    return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]


def body_of(node: FunctionNode) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else list(node.body)


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes in statements, in order; of functions inside them only the defaults."""
    for node in nodes:
        yield node
        if isinstance(node, InnerDefinition):
            yield from _own(node.args.defaults)
        else:
            yield from _own(ast.iter_child_nodes(node))
