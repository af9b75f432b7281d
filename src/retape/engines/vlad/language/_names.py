"""Names: which are free in a term, and new ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from retape.engines.vlad.language._core import (
    App,
    Const,
    Core,
    Global,
    If,
    Lambda,
    Letrec,
    Prim,
    Var,
)


class FreeVariables:
    """A table of terms and the variables that are free in them.

    Lambdas know theirs, so a term is looked through down to its lambdas only. Terms are
    known by identity, and are kept alive so that no other term takes their place.

    Examples:
        >>> from retape.engines.vlad.language._diagnostics import Source, Where
        >>> here = Where(Source("test", ""), 0)
        >>> x, y = Var(here, "x"), Var(here, "y")
        >>> FreeVariables().of(If(here, x, y, x))
        ('x', 'y')
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[str, ...]] = {}
        self._alive: list[Core] = []

    def of(self, core: Core) -> tuple[str, ...]:
        """The free variables of a term, in the order of their first use."""
        if id(core) not in self._found:
            self._found[id(core)] = tuple(dict.fromkeys(self._parts(core)))
            self._alive.append(core)
        return self._found[id(core)]

    def _parts(self, core: Core) -> Sequence[str]:
        match core:
            case Const() | Global():
                return ()
            case Var():
                return (core.name,)
            case Lambda():
                return core.free
            case App():
                return (*self.of(core.fun), *self.of(core.arg))
            case If():
                parts = (core.test, core.then, core.other)
                return [name for each in parts for name in self.of(each)]
            case Letrec():
                inside = [n for n in self.of(core.body) if n not in core.names]
                return (*core.free, *inside)
            case Prim():
                return [name for each in core.args for name in self.of(each)]


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
