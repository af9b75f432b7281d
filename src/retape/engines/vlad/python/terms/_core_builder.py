"""Terms of the core language, with unique names and the free variables of lambdas."""

from collections.abc import Sequence

from retape.engines.vlad.language._core import (
    App,
    Const,
    Core,
    Lambda,
    Letrec,
    Pattern,
    PConst,
    PPair,
    Prim,
    PVar,
    pattern_names,
)
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._names import FreeVariables, Names
from retape.engines.vlad.operators._table import CONS


class CoreBuilder:
    """Builds the terms of one program, from the inside out."""

    def __init__(self) -> None:
        self.names = Names()
        self._free = FreeVariables()

    def fresh(self, name: str) -> str:
        return self.names.fresh(name)

    def free(self, core: Core) -> tuple[str, ...]:
        """The free variables of a term, in the order of their first use."""
        return self._free.of(core)

    def function(
        self, where: Where, name: str | None, param: Pattern, body: Core
    ) -> Lambda:
        """A function; what its body has from outside is free in it."""
        bound = set(pattern_names(param))
        free = tuple(each for each in self.free(body) if each not in bound)
        return Lambda(where, name, param, body, free)

    def let(self, where: Where, param: Pattern, value: Core, body: Core) -> Core:
        return App(where, self.function(where, None, param, body), value)

    def let_var(self, where: Where, name: str, value: Core, body: Core) -> Core:
        return self.let(where, PVar(name), value, body)

    def letrec(
        self, where: Where, name: str, params: Sequence[str], inside: Core, body: Core
    ) -> Core:
        """One function that may call itself, and a term that calls it."""
        function = self.function(where, name, tuple_pattern(params), inside)
        free = tuple(each for each in function.free if each != name)
        return Letrec(where, (name,), (function,), body, free)

    def call(self, where: Where, function: Core, args: Sequence[Core]) -> Core:
        return App(where, function, tuple_of(where, args))


def tuple_of(where: Where, items: Sequence[Core]) -> Core:
    """Several values as one: `(cons a (cons b c))`; none as `()`."""
    if not items:
        return Const(where, ())
    *rest, result = items
    for item in reversed(rest):
        result = Prim(where, CONS, (item, result))
    return result


def tuple_pattern(names: Sequence[str]) -> Pattern:
    """The parameter that takes such a value apart."""
    return nested_pattern([PVar(name) for name in names])


def nested_pattern(parts: Sequence[Pattern]) -> Pattern:
    """The parameter of parts that are parameters."""
    if not parts:
        return PConst(())
    *rest, result = parts
    for part in reversed(rest):
        result = PPair(part, result)
    return result
