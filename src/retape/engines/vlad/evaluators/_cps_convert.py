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
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._free_variables import FreeVariables
from retape.engines.vlad.values._match import Environment
from retape.engines.vlad.values._primitives import Table
from retape.engines.vlad.values._values import Closure, Value

PUSH, VAR, CONST, MAKE, GROUP, NULLARY = range(6)
"""Terms that are entered with a check: (20b), (20a), (20c), and the others' starts."""

NEXT, CALL, UNARY, BINARY, BRANCH, TERNARY, HALTED = range(6, 13)
"""Bodies of `lambda3`: what happens when an operand's value has arrived."""

_TEMPORARY = ("%1", "%2")
"""Names of operands that wait for another; no program can write them."""


class _Scope:
    """The layout of an environment, and the siblings of the function it belongs to."""

    def __init__(
        self,
        names: Iterable[str],
        siblings: dict[str, tuple[LinkedFunction, tuple[str, ...]]],
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
        """A function that takes the values of names from an environment."""
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


class Converter(Translator[_Scope]):
    """To the hybrid's code."""

    def __init__(self, definitions: dict[str, Lambda], table: Table) -> None:
        super().__init__(definitions, table)
        self._free = FreeVariables()

    def _layout(self, names: Iterable[str]) -> _Scope:
        return _Scope(names, {})

    def _piece(self, core: Core, layout: _Scope) -> Instr:
        where = core.where
        match core:
            case Const():  # (20a)
                return Instr(CONST, where, value=core.value)
            case Global():
                return Instr(CONST, where, value=self._global(core.name))
            case Var():  # (20b)
                if core.name in layout.siblings:
                    return Instr(VAR, where, fn=layout.getter(core.name), index=-1)
                return Instr(VAR, where, index=layout.places[core.name])
            case Lambda():  # (20c)
                return self._lambda(core, layout)
            case Letrec():
                return self._letrec(core, layout)
            case App():  # (20d)
                return self._operands(core, (core.fun, core.arg), CALL, layout)
            case If():  # (20e)
                return self._if(core, layout)
            case Prim():  # (20f-j)
                if not core.args:
                    return Instr(NULLARY, where, fn=self.table[core.op])
                op = (UNARY, BINARY, TERNARY)[len(core.args) - 1]
                return self._operands(core, core.args, op, layout)

    def _operands(
        self, core: App | Prim, args: tuple[Core, ...], op: int, layout: _Scope
    ) -> Instr:
        """Evaluate operands from left to right, each in its own `lambda3`."""
        fn = self._operator(core.op) if isinstance(core, Prim) else None
        first, *rest = args
        kept = layout.needs(name for each in rest for name in self._free.of(each))
        inner = _Scope((_TEMPORARY[0], "k", *kept), layout.siblings)
        body = self._rest(core.where, rest, (op, fn), inner, 1)
        return self._push(core.where, PUSH, first, body, kept, layout)

    def _rest(
        self,
        where: Where,
        rest: list[Core],
        finish: tuple[int, Any],
        layout: _Scope,
        have: int,
    ) -> Instr:
        if not rest:
            return Instr(finish[0], where, fn=finish[1])
        first, *more = rest
        kept = layout.needs(name for each in more for name in self._free.of(each))
        waiting = [*_TEMPORARY[: have - 1], _TEMPORARY[have - 1]]
        newest = f"%{have + 1}"
        inner = _Scope((newest, "k", *waiting, *kept), layout.siblings)
        body = self._rest(where, more, finish, inner, have + 1)
        return self._push(where, NEXT, first, body, [*waiting, *kept], layout)

    def _push(
        self,
        where: Where,
        op: int,
        first: Core,
        body: Instr,
        kept: list[str],
        layout: _Scope,
    ) -> Instr:
        """Evaluate `first` with the continuation `lambda3 n l x. body`."""
        gather = layout.gather(kept)
        return Instr(op, where, a=self._piece(first, layout), value=body, gather=gather)

    def _if(self, core: If, layout: _Scope) -> Instr:
        kept = layout.needs((*self._free.of(core.then), *self._free.of(core.other)))
        inner = _Scope(("%1", "k", *kept), layout.siblings)
        then, other = self._piece(core.then, inner), self._piece(core.other, inner)
        body = Instr(BRANCH, core.where, a=then, b=other)
        return self._push(core.where, PUSH, core.test, body, kept, layout)

    def _lambda(self, core: Lambda, layout: _Scope) -> Instr:
        function = self._made(core)
        if not core.free:
            return Instr(CONST, core.where, value=Closure(function, ()))
        return Instr(MAKE, core.where, value=function, gather=layout.gather(core.free))

    def _letrec(self, core: Letrec, layout: _Scope) -> Instr:
        functions = group_of(core)
        siblings = {
            name: (function, core.free)
            for name, function in zip(core.names, functions, strict=True)
        }
        for function, source in zip(functions, core.lambdas, strict=True):
            names = [*pattern_names(source.param), *core.free]
            self._body(function, source, _Scope(names, siblings))
        outer = {k: v for k, v in layout.siblings.items() if k not in siblings}
        inner = _Scope((*layout.places, *core.names), outer)
        body = self._piece(core.body, inner)
        gather = layout.gather(core.free)
        return Instr(GROUP, core.where, value=functions, gather=gather, a=body)
