"""The core language to the interpreter's code: names become places in an environment.

    (lambda (x) (* x y))  ->  MAKE function [captures: place of y]
                              function: 2 places; BINARY * (place 0) (place 1)

An environment is a tuple: what the parameter binds, then the free variables, then the
functions of each letrec entered. A function of a letrec holds the free variables of the
whole group; a sibling is made from them where it is mentioned, so that no value refers
to itself.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from retape.engines.vlad._builtins import BUILTINS, is_builtin
from retape.engines.vlad._fault import Where
from retape.engines.vlad._primitives import Table
from retape.engines.vlad._syntax import (
    App,
    Const,
    Core,
    Global,
    If,
    Lambda,
    Letrec,
    Pattern,
    PConst,
    PPair,
    Prim,
    PVar,
    Var,
    pattern_names,
)
from retape.engines.vlad._values import Closure, Mismatch, Value, kind_of, show_pattern

VAR, CONST, APP, BINARY, IF, MAKE, UNARY, SIBLING, LETREC, TERNARY, NULLARY = range(11)
INTERRUPT, RESUME = 11, 12

Environment = tuple[Value, ...]


class Code:
    """One expression: an operation, and what it needs (which depends on it)."""

    __slots__ = ("op", "where", "index", "value", "fn", "a", "b", "c")

    def __init__(self, op: int, where: Where, **parts: Any) -> None:
        self.op = op
        self.where = where
        for name, part in parts.items():
            setattr(self, name, part)


class Function:
    """A function's code: how it takes its argument apart, and its body.

    `size` is the number of values that a closure of it holds.
    """

    __slots__ = ("name", "where", "pattern", "bind", "bound", "size", "body", "builtin")

    body: Code

    def __init__(self, source: Lambda, size: int) -> None:
        self.name = source.name
        self.where = source.where
        self.pattern = source.param
        self.bind = binder(source.param)
        self.bound = len(pattern_names(source.param))
        self.size = size
        self.builtin = is_builtin(source)


def binder(pattern: Pattern) -> Callable[[Value], Environment]:
    """What takes an argument apart: the values that a parameter binds, in order."""
    match pattern:
        case PVar():
            return lambda v: (v,)
        case PPair(car=PVar(), cdr=PVar()):
            return lambda v: v if type(v) is tuple and v else _mismatch(pattern, v)
    return lambda v: _bind(pattern, v)


def _bind(pattern: Pattern, value: Value) -> Environment:
    bound: list[Value] = []
    stack: list[tuple[Pattern, Value]] = [(pattern, value)]
    while stack:
        part, v = stack.pop()
        match part:
            case PVar():
                bound.append(v)
            case PPair():
                if type(v) is not tuple or not v:
                    _mismatch(pattern, value)
                stack.extend(((part.cdr, v[1]), (part.car, v[0])))
            case PConst():
                if not same_constant(part.value, v):
                    _mismatch(pattern, value)
    return tuple(bound)


def same_constant(constant: Value, value: Value) -> bool:
    """Whether an argument is the constant that a parameter demands."""
    while hasattr(value, "primal"):
        value = value.primal
    return type(value) is type(constant) and bool(value == constant)


def _mismatch(pattern: Pattern, value: Value) -> Environment:
    raise Mismatch(
        f"the argument, {kind_of(value)}, does not match the parameter "
        f"`{show_pattern(pattern)}`"
    )


class _Frame:
    """The places of one function's environment, while its body is linked."""

    def __init__(self, names: list[str]) -> None:
        self.places = {name: i for i, name in enumerate(names)}
        self.size = len(names)
        self.siblings: dict[str, tuple[Function, int]] = {}

    def extended(self, names: tuple[str, ...]) -> "_Frame":
        inner = _Frame([])
        inner.places = dict(self.places)
        inner.siblings = {k: v for k, v in self.siblings.items() if k not in names}
        for name in names:
            inner.places[name] = self.size + len(inner.places) - len(self.places)
        inner.size = self.size + len(names)
        return inner


class Linker:
    """Links the definitions of a program, each when it is first needed."""

    def __init__(self, definitions: dict[str, Lambda], table: Table) -> None:
        self.definitions = {**BUILTINS, **definitions}
        self.table = table
        self.globals: dict[str, Closure] = {}
        self._pending: list[tuple[Function, Lambda]] = []

    def link(self, core: Core) -> Code:
        """The code of an expression, with that of all definitions it can reach."""
        code = self._code(core, _Frame([]))
        self._finish()
        return code

    def function(self, name: str) -> Closure:
        """A definition as a value."""
        closure = self._global(name)
        self._finish()
        return closure

    def _finish(self) -> None:
        while self._pending:
            function, source = self._pending.pop()
            self._body(function, source, _Frame(pattern_names(source.param)))

    def _global(self, name: str) -> Closure:
        if name not in self.globals:
            source = self.definitions[name]
            function = Function(source, 0)
            self.globals[name] = Closure(function, ())
            self._pending.append((function, source))
        return self.globals[name]

    def _body(self, function: Function, source: Lambda, frame: _Frame) -> None:
        function.body = self._code(source.body, frame)

    def _code(self, core: Core, frame: _Frame) -> Code:
        where = core.where
        match core:
            case Var():
                return self._variable(core, frame)
            case Const():
                return Code(CONST, where, value=core.value)
            case Global():
                return Code(CONST, where, value=self._global(core.name))
            case App():
                a, b = self._code(core.fun, frame), self._code(core.arg, frame)
                return Code(APP, where, a=a, b=b)
            case If():
                a, b = self._code(core.test, frame), self._code(core.then, frame)
                return Code(IF, where, a=a, b=b, c=self._code(core.other, frame))
            case Lambda():
                return self._lambda(core, frame)
            case Letrec():
                return self._letrec(core, frame)
            case Prim():
                return self._prim(core, frame)

    def _variable(self, core: Var, frame: _Frame) -> Code:
        if core.name in frame.siblings:
            function, first = frame.siblings[core.name]
            return Code(SIBLING, core.where, fn=function, index=first)
        return Code(VAR, core.where, index=frame.places[core.name])

    def _prim(self, core: Prim, frame: _Frame) -> Code:
        parts = [self._code(arg, frame) for arg in core.args]
        op = (NULLARY, UNARY, BINARY, TERNARY)[len(parts)]
        op = {"interrupt": INTERRUPT, "resume": RESUME}.get(core.op, op)
        named = dict(zip("abc", parts, strict=False))
        return Code(op, core.where, fn=self.table.get(core.op), value=core.op, **named)

    def _lambda(self, core: Lambda, frame: _Frame) -> Code:
        function = Function(core, len(core.free))
        names = [*pattern_names(core.param), *core.free]
        self._body(function, core, _Frame(names))
        if not core.free:
            return Code(CONST, core.where, value=Closure(function, ()))
        return Code(MAKE, core.where, value=function, fn=capture(core.free, frame))

    def _letrec(self, core: Letrec, frame: _Frame) -> Code:
        functions = [Function(each, len(core.free)) for each in core.lambdas]
        for function, source in zip(functions, core.lambdas, strict=True):
            names = [*pattern_names(source.param), *core.free]
            inner = _Frame(names)
            for name, sibling in zip(core.names, functions, strict=True):
                inner.siblings[name] = (sibling, function.bound)
            self._body(function, source, inner)
        body = self._code(core.body, frame.extended(core.names))
        gather = capture(core.free, frame)
        return Code(LETREC, core.where, value=tuple(functions), fn=gather, a=body)


def capture(
    names: tuple[str, ...], frame: _Frame
) -> Callable[[Environment], Environment]:
    """What gathers the values of variables from an environment."""
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
