"""Names in a function: which are assigned, which are read, which a closure takes.

What is asked of a whole function is kept: one of our library is translated for each
call of it, and half of that time went to walks.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from retape.engines.vlad.python.read._source import FunctionNode

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


InnerDefinition = ast.FunctionDef | ast.Lambda

_COMPREHENSIONS = ast.ListComp, ast.GeneratorExp


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
        elif isinstance(node, ast.Expr | ast.Assign):
            name = changed_list(node)
            if name is not None:
                found[name] = None
    return list(found)


def changed_list(node: ast.Expr | ast.Assign) -> str | None:
    """The variable that `xs.append(x)` or `x = xs.pop()` changes; `None` for others."""
    match node.value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            is_change = method == "pop" or (
                method == "append" and isinstance(node, ast.Expr)
            )
            return name if is_change else None
    return None


def reads(node: FunctionNode) -> list[str]:
    """The names that a function reads and does not bind, in order."""
    own = variables_of(node)
    found: dict[str, None] = {}
    for each in _own(body_of(node)):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            found[each.id] = None
        elif isinstance(each, InnerDefinition):
            found.update(dict.fromkeys(reads(each)))
    return [name for name in found if name not in own]


@cache
def variables_of(node: FunctionNode) -> frozenset[str]:
    """The variables of a function, its parameters among them."""
    return frozenset((*parameters(node), *assigned(body_of(node))))


@cache
def captured(node: FunctionNode) -> Mapping[str, InnerDefinition]:
    """The variables of a function that functions inside it read, with one of those."""
    found: dict[str, InnerDefinition] = {}
    for each in _own(body_of(node)):
        if isinstance(each, InnerDefinition) and not isinstance(each, Comprehension):
            for name in reads(each):
                found.setdefault(name, each)
    return found


@cache
def changes(node: FunctionNode) -> Mapping[str, int]:
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
        if isinstance(top, InnerDefinition | ast.ListComp | ast.GeneratorExp):
            continue
        inner = 2 if isinstance(top, ast.For | ast.While) else times
        stack.extend((each, inner) for each in ast.iter_child_nodes(top))
    return counts


def groups(nodes: Sequence[ast.FunctionDef]) -> list[list[ast.FunctionDef]]:
    """Definitions that stand together: those that call one another as one group.

    A group comes after those that it calls, else as it is written.
    """
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):  # a later one takes the name of an earlier one
        return [[node] for node in nodes]
    calls = {node.name: {*reads(node)} & {*names} for node in nodes}
    for _ in names:
        for name, found in calls.items():
            calls[name] = found.union(*(calls[each] for each in found))
    for i, node in enumerate(nodes):
        before = _read_by_defaults(node) & {*names[:i]}
        calls[node.name] |= before.union(*(calls[each] for each in before))
    left, done = list(nodes), list[list[ast.FunctionDef]]()
    while left:
        made = {node.name for group in done for node in group}
        ready = (each for each in left if _is_next(each.name, calls, made))
        first = next(ready, left[0])
        both = calls[first.name]
        group = [
            each
            for each in left
            if each is first or (each.name in both and first.name in calls[each.name])
        ]
        done.append(group)
        left = [each for each in left if each not in group]
    return done


def _is_next(name: str, calls: dict[str, set[str]], made: set[str]) -> bool:
    """Whether all that a definition calls is made, but for its own group."""
    return all(each == name or name in calls[each] for each in calls[name] - made)


def _read_by_defaults(node: InnerDefinition) -> set[str]:
    return {
        each.id
        for default in node.args.defaults
        for each in ast.walk(default)
        if isinstance(each, ast.Name)
    }


def with_default(node: FunctionNode) -> dict[str, ast.expr]:
    """The defaults of a function's parameters, by name."""
    defaults = node.args.defaults
    names = parameters(node)[-len(defaults) :] if defaults else []
    return dict(zip(names, defaults, strict=True))


def default_of(function: str, parameter: str) -> str:
    """The name of a default among what a function takes from outside.

    It is no name that Python has.
    """
    return f"default {function} {parameter}"


def parameters(node: FunctionNode) -> list[str]:
    return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]


def body_of(node: FunctionNode) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else list(node.body)


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes in statements, in order; of functions inside them only the defaults."""
    for node in nodes:
        if isinstance(node, _COMPREHENSIONS):
            node = as_function(node)
        yield node
        if isinstance(node, InnerDefinition):
            yield from _own(node.args.defaults)
        else:
            yield from _own(ast.iter_child_nodes(node))
