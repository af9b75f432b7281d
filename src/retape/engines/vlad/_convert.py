"""CPS conversion for the hybrid: Figs. 20 and 22, with closures flattened.

    (20f)  [(op e)]k  ->  check; [e](lambda3 n l x. k n l (op x))

A continuation is a target closure, `lambda3`, that holds its own continuation and the
values that the rest of the expression needs, and nothing else; reverse mode sees it as
it sees any closure. The step count and the limit, which Fig. 22 threads through every
call, are registers of the evaluator, as in Fig. 24 (22f-h); so is `k`.

A term either is entered by the check of (20k), which counts a step, or continues after
an operand's value has arrived; the latter are the bodies of `lambda3`.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from retape.engines.vlad._builtins import BUILTINS, is_builtin
from retape.engines.vlad._fault import Where
from retape.engines.vlad._link import binder
from retape.engines.vlad._primitives import Table
from retape.engines.vlad._syntax import (
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
from retape.engines.vlad._values import Closure, Value

PUSH, VAR, CONST, MAKE, GROUP, NULLARY = range(6)
"""Terms that are entered with a check: (20b), (20a), (20c), and the others' starts."""

NEXT, CALL, UNARY, BINARY, BRANCH, TERNARY, HALTED = range(6, 13)
"""Bodies of `lambda3`: what happens when an operand's value has arrived."""

Environment = tuple[Value, ...]
_TEMPORARY = ("%1", "%2")
"""Names of operands that wait for another; no program can write them."""


class Term:
    """A term of converted code; which parts it has depends on `op`."""

    __slots__ = ("op", "where", "index", "value", "fn", "a", "b", "gather")

    def __init__(self, op: int, where: Where, **parts: Any) -> None:
        self.op = op
        self.where = where
        for name, part in parts.items():
            setattr(self, name, part)


class Function:
    """A `lambda4`: how its argument is taken apart, and its body."""

    __slots__ = ("name", "where", "pattern", "bind", "size", "body", "builtin")

    body: Term

    def __init__(self, source: Lambda, size: int) -> None:
        self.name = source.name
        self.where = source.where
        self.pattern = source.param
        self.bind = binder(source.param)
        self.size = size
        self.builtin = is_builtin(source)


class _Scope:
    """The layout of an environment, and the siblings of the function it belongs to."""

    def __init__(
        self,
        names: Iterable[str],
        siblings: dict[str, tuple[Function, tuple[str, ...]]],
    ) -> None:
        self.places = {name: i for i, name in enumerate(names)}
        self.siblings = siblings

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
        if name not in self.siblings:
            return itemgetter(self.places[name])
        function, free = self.siblings[name]
        gather = self.gather(free)
        return lambda env: Closure(function, gather(env))

    def gather(self, names: Iterable[str]) -> Callable[[Environment], Environment]:
        """What takes the values of names from an environment."""
        names = list(names)
        if any(name in self.siblings for name in names):
            getters = [self.getter(name) for name in names]
            return lambda env: tuple([get(env) for get in getters])
        places = [self.places[name] for name in names]
        if not places:
            return lambda env: ()
        if len(places) == 1:
            (place,) = places
            return lambda env: (env[place],)
        return itemgetter(*places)


class Converter:
    """Converts the definitions of a program, each when it is first needed."""

    def __init__(self, definitions: dict[str, Lambda], table: Table) -> None:
        self.definitions = {**BUILTINS, **definitions}
        self.table = table
        self.globals: dict[str, Closure] = {}
        self._pending: list[tuple[Function, Lambda]] = []
        self._free: dict[int, tuple[str, ...]] = {}

    def link(self, core: Core) -> Term:
        """The converted code of an expression, with all definitions it can reach."""
        term = self._term(core, _Scope((), {}))
        self._finish()
        return term

    def function(self, name: str) -> Closure:
        """A definition as a value."""
        closure = self._global(name)
        self._finish()
        return closure

    def _finish(self) -> None:
        while self._pending:
            function, source = self._pending.pop()
            names = pattern_names(source.param)
            function.body = self._term(source.body, _Scope(names, {}))

    def _global(self, name: str) -> Closure:
        if name not in self.globals:
            source = self.definitions[name]
            function = Function(source, 0)
            self.globals[name] = Closure(function, ())
            self._pending.append((function, source))
        return self.globals[name]

    def _term(self, core: Core, scope: _Scope) -> Term:
        where = core.where
        match core:
            case Const():  # (20a)
                return Term(CONST, where, value=core.value)
            case Global():
                return Term(CONST, where, value=self._global(core.name))
            case Var():  # (20b)
                if core.name in scope.siblings:
                    return Term(VAR, where, fn=scope.getter(core.name), index=-1)
                return Term(VAR, where, index=scope.places[core.name])
            case Lambda():  # (20c)
                return self._lambda(core, scope)
            case Letrec():
                return self._letrec(core, scope)
            case App():  # (20d)
                return self._operands(core, (core.fun, core.arg), CALL, scope)
            case If():  # (20e)
                return self._if(core, scope)
            case Prim():  # (20f-j)
                if not core.args:
                    return Term(NULLARY, where, fn=self.table[core.op])
                op = (UNARY, BINARY, TERNARY)[len(core.args) - 1]
                return self._operands(core, core.args, op, scope)

    def _operands(
        self, core: App | Prim, args: tuple[Core, ...], op: int, scope: _Scope
    ) -> Term:
        """Evaluate operands from left to right, each in its own `lambda3`."""
        fn = self.table[core.op] if isinstance(core, Prim) else None
        first, *rest = args
        kept = scope.needs(name for each in rest for name in self.free(each))
        inner = _Scope((_TEMPORARY[0], "k", *kept), scope.siblings)
        body = self._rest(core.where, rest, (op, fn), inner, 1)
        return self._push(core.where, PUSH, first, body, kept, scope)

    def _rest(
        self,
        where: Where,
        rest: list[Core],
        finish: tuple[int, Any],
        scope: _Scope,
        have: int,
    ) -> Term:
        if not rest:
            return Term(finish[0], where, fn=finish[1])
        first, *more = rest
        kept = scope.needs(name for each in more for name in self.free(each))
        waiting = [*_TEMPORARY[: have - 1], _TEMPORARY[have - 1]]
        newest = f"%{have + 1}"
        inner = _Scope((newest, "k", *waiting, *kept), scope.siblings)
        body = self._rest(where, more, finish, inner, have + 1)
        return self._push(where, NEXT, first, body, [*waiting, *kept], scope)

    def _push(
        self,
        where: Where,
        op: int,
        first: Core,
        body: Term,
        kept: list[str],
        scope: _Scope,
    ) -> Term:
        """Evaluate `first` with the continuation `lambda3 n l x. body`."""
        gather = scope.gather(kept)
        return Term(op, where, a=self._term(first, scope), value=body, gather=gather)

    def _if(self, core: If, scope: _Scope) -> Term:
        kept = scope.needs((*self.free(core.then), *self.free(core.other)))
        inner = _Scope(("%1", "k", *kept), scope.siblings)
        then, other = self._term(core.then, inner), self._term(core.other, inner)
        body = Term(BRANCH, core.where, a=then, b=other)
        return self._push(core.where, PUSH, core.test, body, kept, scope)

    def _lambda(self, core: Lambda, scope: _Scope) -> Term:
        function = Function(core, len(core.free))
        names = [*pattern_names(core.param), *core.free]
        function.body = self._term(core.body, _Scope(names, {}))
        if not core.free:
            return Term(CONST, core.where, value=Closure(function, ()))
        return Term(MAKE, core.where, value=function, gather=scope.gather(core.free))

    def _letrec(self, core: Letrec, scope: _Scope) -> Term:
        functions = [Function(each, len(core.free)) for each in core.lambdas]
        siblings = {
            name: (function, core.free)
            for name, function in zip(core.names, functions, strict=True)
        }
        for function, source in zip(functions, core.lambdas, strict=True):
            names = [*pattern_names(source.param), *core.free]
            function.body = self._term(source.body, _Scope(names, siblings))
        outer = {k: v for k, v in scope.siblings.items() if k not in siblings}
        inner = _Scope((*scope.places, *core.names), outer)
        body = self._term(core.body, inner)
        gather = scope.gather(core.free)
        return Term(GROUP, core.where, value=tuple(functions), gather=gather, a=body)

    def free(self, core: Core) -> tuple[str, ...]:
        """The free variables of an expression, in the order of their first use."""
        if id(core) not in self._free:
            names = dict.fromkeys(self._free_of(core))
            self._free[id(core)] = tuple(names)
            self._keep(core)
        return self._free[id(core)]

    def _free_of(self, core: Core) -> Iterable[str]:
        match core:
            case Const() | Global():
                return ()
            case Var():
                return (core.name,)
            case Lambda():
                return core.free
            case Letrec():
                inside = [n for n in self.free(core.body) if n not in core.names]
                return (*core.free, *inside)
            case App():
                return (*self.free(core.fun), *self.free(core.arg))
            case If():
                parts = (core.test, core.then, core.other)
                return [n for each in parts for n in self.free(each)]
            case Prim():
                return [n for each in core.args for n in self.free(each)]

    def _keep(self, core: Core) -> None:
        self._kept = getattr(self, "_kept", [])
        self._kept.append(core)
