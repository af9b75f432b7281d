"""Code of the interpreter and the hybrid: instructions, functions, translation.

Both translate the definitions of a program when they are first needed; what they make
of an expression is their own. An environment is a tuple: what the parameter binds, then
the free variables, then the functions of each letrec entered. A function of a letrec
holds the free variables of the whole group; a sibling is made from them where it is
mentioned, so that no value refers to itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from retape.engines.vlad.language._builtins import BUILTINS, is_builtin
from retape.engines.vlad.language._core import Core, Lambda, Letrec, pattern_names
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.values._each import each_operator
from retape.engines.vlad.values._primitives import Table
from retape.engines.vlad.values._values import Closure, Environment, Value, binder

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


class Instr:
    """One piece of code: an operation, and what it needs (which depends on it)."""

    __slots__ = ("op", "where", "index", "value", "fn", "a", "b", "c", "gather")

    def __init__(self, op: int, where: Where, **parts: Any) -> None:
        self.op = op
        self.where = where
        for name, part in parts.items():
            setattr(self, name, part)


class LinkedFunction:
    """A function's code: how it takes its argument apart, and its body.

    `size` is the number of values that a closure of it holds, `bound` the number that
    its parameter binds.
    """

    __slots__ = ("name", "where", "pattern", "bind", "bound", "size", "body", "builtin")

    body: Instr

    def __init__(self, source: Lambda, size: int) -> None:
        self.name = source.name
        self.where = source.where
        self.pattern = source.param
        self.bind = binder(source.param)
        self.bound = len(pattern_names(source.param))
        self.size = size
        self.builtin = is_builtin(source)


class Translator(ABC):
    """Translates the definitions of a program, each when it is first needed."""

    def __init__(self, definitions: dict[str, Lambda], table: Table) -> None:
        self.definitions = {**BUILTINS, **definitions}
        self.table = table
        self.globals: dict[str, Closure] = {}
        self._pending: list[tuple[LinkedFunction, Lambda]] = []

    def link(self, core: Core) -> Instr:
        """The code of an expression, with that of all definitions it can reach."""
        piece = self._piece(core, Layout())
        self._finish()
        return piece

    def function(self, name: str) -> Closure:
        """A definition as a value."""
        closure = self._global(name)
        self._finish()
        return closure

    @abstractmethod
    def _piece(self, core: Core, layout: Layout) -> Instr:
        """The code of an expression in an environment."""

    def _operator(self, name: str) -> Any:
        """What an operator does; nothing for one that the evaluator does itself."""
        return self.table.get(name) or each_operator(name)

    def _finish(self) -> None:
        while self._pending:
            function, source = self._pending.pop()
            self._body(function, source, Layout(pattern_names(source.param)))

    def _global(self, name: str) -> Closure:
        if name not in self.globals:
            source = self.definitions[name]
            function = LinkedFunction(source, 0)
            self.globals[name] = Closure(function, ())
            self._pending.append((function, source))
        return self.globals[name]

    def _body(self, function: LinkedFunction, source: Lambda, layout: Layout) -> None:
        function.body = self._piece(source.body, layout)

    def _closure(self, core: Lambda, layout: Layout, const: int, make: int) -> Instr:
        """A lambda: its function binds variables, then has what is from outside."""
        function = LinkedFunction(core, len(core.free))
        names = (*pattern_names(core.param), *core.free)
        self._body(function, core, Layout(names))
        if not core.free:
            return Instr(const, core.where, value=Closure(function, ()))
        gather = layout.gather(core.free)
        return Instr(make, core.where, value=function, gather=gather)

    def _group(self, core: Letrec, layout: Layout, op: int) -> Instr:
        """A letrec: the closures of its functions all hold the same."""
        functions = tuple(LinkedFunction(each, len(core.free)) for each in core.lambdas)
        siblings = {
            name: (function, core.free)
            for name, function in zip(core.names, functions, strict=True)
        }
        for function, source in zip(functions, core.lambdas, strict=True):
            names = (*pattern_names(source.param), *core.free)
            self._body(function, source, Layout(names, siblings))
        body = self._piece(core.body, layout.extended(core.names))
        gather = layout.gather(core.free)
        return Instr(op, core.where, value=functions, gather=gather, a=body)
