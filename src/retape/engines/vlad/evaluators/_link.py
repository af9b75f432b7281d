"""The core language to the interpreter's code: names become places in an environment.

    (lambda (x) (* x y))  ->  MAKE function [captures: place of y]
                              function: 2 places; BINARY * (place 0) (place 1)

An environment is a tuple: what the parameter binds, then the free variables, then the
functions of each letrec entered. A function of a letrec holds the free variables of the
whole group; a sibling is made from them where it is mentioned, so that no value refers
to itself.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter

from retape.engines.vlad.evaluators._code import (
    Instr,
    LinkedFunction,
    Translator,
    group_of,
)
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
    pattern_names,
)
from retape.engines.vlad.values._match import Environment
from retape.engines.vlad.values._values import Closure, Value

VAR, CONST, APP, BINARY, IF, MAKE, UNARY, SIBLING, LETREC, TERNARY, NULLARY = range(11)
INTERRUPT, RESUME = 11, 12


class _Frame:
    """The places of one function's environment, while its body is linked."""

    def __init__(self, names: Iterable[str]) -> None:
        self.places = {name: i for i, name in enumerate(names)}
        self.size = len(self.places)
        self.siblings: dict[str, tuple[LinkedFunction, int]] = {}

    def extended(self, names: tuple[str, ...]) -> "_Frame":
        inner = _Frame([])
        inner.places = dict(self.places)
        inner.siblings = {k: v for k, v in self.siblings.items() if k not in names}
        for name in names:
            inner.places[name] = self.size + len(inner.places) - len(self.places)
        inner.size = self.size + len(names)
        return inner


class Linker(Translator[_Frame]):
    """To the interpreter's code."""

    def _layout(self, names: Iterable[str]) -> _Frame:
        return _Frame(names)

    def _piece(self, core: Core, layout: _Frame) -> Instr:
        where = core.where
        match core:
            case Var():
                return self._variable(core, layout)
            case Const():
                return Instr(CONST, where, value=core.value)
            case Global():
                return Instr(CONST, where, value=self._global(core.name))
            case App():
                a, b = self._piece(core.fun, layout), self._piece(core.arg, layout)
                return Instr(APP, where, a=a, b=b)
            case If():
                a, b = self._piece(core.test, layout), self._piece(core.then, layout)
                return Instr(IF, where, a=a, b=b, c=self._piece(core.other, layout))
            case Lambda():
                return self._lambda(core, layout)
            case Letrec():
                return self._letrec(core, layout)
            case Prim():
                return self._prim(core, layout)

    def _variable(self, core: Var, layout: _Frame) -> Instr:
        if core.name in layout.siblings:
            function, first = layout.siblings[core.name]
            return Instr(SIBLING, core.where, fn=function, index=first)
        return Instr(VAR, core.where, index=layout.places[core.name])

    def _prim(self, core: Prim, layout: _Frame) -> Instr:
        parts = [self._piece(arg, layout) for arg in core.args]
        op = (NULLARY, UNARY, BINARY, TERNARY)[len(parts)]
        op = {"interrupt": INTERRUPT, "resume": RESUME}.get(core.op, op)
        named = dict(zip("abc", parts, strict=False))
        return Instr(op, core.where, fn=self._operator(core.op), value=core.op, **named)

    def _lambda(self, core: Lambda, layout: _Frame) -> Instr:
        function = self._made(core)
        if not core.free:
            return Instr(CONST, core.where, value=Closure(function, ()))
        return Instr(MAKE, core.where, value=function, fn=capture(core.free, layout))

    def _letrec(self, core: Letrec, layout: _Frame) -> Instr:
        functions = group_of(core)
        for function, source in zip(functions, core.lambdas, strict=True):
            names = [*pattern_names(source.param), *core.free]
            inner = _Frame(names)
            for name, sibling in zip(core.names, functions, strict=True):
                inner.siblings[name] = (sibling, function.bound)
            self._body(function, source, inner)
        body = self._piece(core.body, layout.extended(core.names))
        gather = capture(core.free, layout)
        return Instr(LETREC, core.where, value=functions, fn=gather, a=body)


def capture(
    names: tuple[str, ...], frame: _Frame
) -> Callable[[Environment], Environment]:
    """A function that gathers the values of variables from an environment."""
    if any(name in frame.siblings for name in names):
        getters = [_getter(name, frame) for name in names]
        return lambda env: tuple(get(env) for get in getters)
    places = [frame.places[name] for name in names]
    match places:
        case []:
            return lambda env: ()
        case [place]:
            return lambda env: (env[place],)
    return itemgetter(*places)


def _getter(name: str, frame: _Frame) -> Callable[[Environment], Value]:
    if name not in frame.siblings:
        return itemgetter(frame.places[name])
    function, first = frame.siblings[name]
    size = function.size
    return lambda env: Closure(function, env[first : first + size])
