"""Facts about a function's variables at one place of it."""

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from retape.engines.vlad.python.library._table import VIEWS
from retape.engines.vlad.python.read._types import Type


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable at one place of a function.

    Attributes:
        name: Its name in the core language.
        owned: Whether it holds an array that no other variable can hold.
        least: An int that it is known not to be below.
    """

    name: str
    type: Type
    owned: bool = False
    least: int | None = None


Variables = dict[str, Variable]
"""By their names in Python."""


def share(node: ast.AST, env: Variables) -> None:
    """Note that the arrays in a variable have a second name from now on."""
    node = _base(node, env)
    if isinstance(node, ast.Name) and node.id in env:
        variable = env[node.id]
        if variable.owned:
            for name, other in list(env.items()):
                if other.name == variable.name:
                    env[name] = replace(other, owned=False)


def _base(node: ast.AST, env: Variables) -> ast.AST:
    """What an expression is a part, or another form, of: NumPy's may be a view."""
    while True:
        match node:
            case ast.Subscript(value=inner) | ast.Attribute(value=inner):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in VIEWS:
                is_module = isinstance(inner, ast.Name) and inner.id not in env
                node = node.args[0] if is_module and node.args else inner
            case _:
                return node


def parting(node: ast.expr, env: Variables, names: Iterable[str]) -> set[str]:
    """Variables whose arrays get a new name in a tuple and lose this one.

    Args:
        node: The tuple; what stands twice in it has two names afterwards.
        env: The variables before it.
        names: Those that are gone, or have other values, as soon as it is made.
    """
    if not isinstance(node, ast.Tuple):
        return set()
    counts = Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    alone = (each.id for each in node.elts if isinstance(each, ast.Name))
    return {
        name
        for name in {*alone} & {*names}
        if counts[name] == 1 and name in env and env[name].owned
    }
