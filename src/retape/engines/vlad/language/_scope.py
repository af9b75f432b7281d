"""Scopes: from the names that a program writes to names that are unique in it.

A function's scope collects the variables that its body takes from outside, in the order
in which they are first used: they are its closure's contents, and reverse mode sees
them, so their order must be the same in every implementation.
"""

from dataclasses import dataclass, field
from itertools import count


@dataclass(slots=True)
class Scope:
    """The names bound by one lambda or letrec, inside an outer scope.

    Attributes:
        names: What each name that is bound here is called in the core language.
        outer: The scope around this one, or `None` for a top-level form's.
        closes: Whether this is a lambda's: then what is found outside is free in it.
        free: The free variables found so far, in order (the values mean nothing).
    """

    names: dict[str, str]
    outer: "Scope | None"
    closes: bool
    free: dict[str, None] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """Look a name up, and note it as free in every lambda on the way."""
        crossed: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                unique = scope.names[name]
                for each in crossed:
                    each.free[unique] = None
                return unique
            if scope.closes:
                crossed.append(scope)
            scope = scope.outer
        return None


@dataclass(slots=True)
class Names:
    """A source of names that are unique in a program."""

    numbers: "count[int]" = field(default_factory=count)

    def fresh(self, name: str) -> str:
        return f"{name}.{next(self.numbers)}"
