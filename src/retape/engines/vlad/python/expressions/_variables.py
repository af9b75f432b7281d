"""Facts about a function's variables at one place of it."""

import ast
from dataclasses import dataclass, replace

from retape.engines.vlad.python.read._types import Type


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable at one place of a function.

    Attributes:
        name: Its name in the core language.
        owned: Whether it holds an array that no other variable can hold.
        natural: Whether it is known not to be negative.
    """

    name: str
    type: Type
    owned: bool = False
    natural: bool = False


Variables = dict[str, Variable]
"""By their names in Python."""


def share(node: ast.AST, env: Variables) -> None:
    """Note that the arrays in a variable have a second name from now on."""
    if isinstance(node, ast.Name) and node.id in env:
        variable = env[node.id]
        if variable.owned:
            for name, other in list(env.items()):
                if other.name == variable.name:
                    env[name] = replace(other, owned=False)
