"""The layout of an environment: at which places the values of names stand in it.

An environment is a tuple: what the parameter binds, then the free variables, then the
functions of each letrec entered. A function of a letrec holds the free variables of the
whole group; a sibling is made from them where it is mentioned, so that no value refers
to itself.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from retape.engines.vlad.values._match import Environment
from retape.engines.vlad.values._values import Closure, Value

Siblings = dict[str, tuple[Any, tuple[str, ...]]]
"""Of each function of a letrec its code, and what its closure holds."""


class Layout:
    """The places of names, and the siblings of the function it belongs to."""

    def __init__(
        self, names: Iterable[str] = (), siblings: Siblings | None = None
    ) -> None:
        self.places = {name: i for i, name in enumerate(names)}
        self.siblings = siblings or {}

    def extended(self, names: tuple[str, ...]) -> "Layout":
        """With more values behind; all names in a program differ."""
        outer = {k: v for k, v in self.siblings.items() if k not in names}
        return Layout((*self.places, *names), outer)

    def needs(self, names: Iterable[str]) -> list[str]:
        """The places to keep so that these names can be had later, in order."""
        kept: dict[str, None] = {}
        for name in names:
            if name in self.siblings:
                kept.update(dict.fromkeys(self.siblings[name][1]))
            else:
                kept[name] = None
        return list(kept)

    def getter(self, name: str) -> Callable[[Environment], Value]:
        """A function that takes the value of a name from an environment."""
        if name not in self.siblings:
            return itemgetter(self.places[name])
        function, free = self.siblings[name]
        gather = self.gather(free)
        return lambda env: Closure(function, gather(env))

    def gather(self, names: Iterable[str]) -> Callable[[Environment], Environment]:
        """A function that takes the values of names from an environment."""
        names = list(names)
        if any(name in self.siblings for name in names):
            getters = [self.getter(name) for name in names]
            return lambda env: tuple([get(env) for get in getters])
        places = [self.places[name] for name in names]
        match places:
            case []:
                return lambda env: ()
            case [place]:
                return lambda env: (env[place],)
        return itemgetter(*places)
