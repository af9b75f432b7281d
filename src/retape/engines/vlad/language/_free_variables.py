"""The free variables of terms, each term looked through once."""

from collections.abc import Sequence

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
