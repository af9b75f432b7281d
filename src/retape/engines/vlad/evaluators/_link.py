"""The core language to the interpreter's code: names become places in an environment.

    (lambda (x) (* x y))  ->  MAKE function [captures: place of y]
                              function: 2 places; BINARY * (place 0) (place 1)

What a function of a letrec holds stands at places one behind the other, so that one
slice of the environment makes a sibling.
"""

from retape.engines.vlad.evaluators._code import Instr, Layout, Translator
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

VAR, CONST, APP, BINARY, IF, MAKE, UNARY, SIBLING, LETREC, TERNARY, NULLARY = range(11)


class Linker(Translator):
    """To the interpreter's code."""

    def _piece(self, core: Core, layout: Layout) -> Instr:
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
                return self._closure(core, layout, CONST, MAKE)
            case Letrec():
                return self._group(core, layout, LETREC)
            case Prim():
                return self._prim(core, layout)

    def _variable(self, core: Var, layout: Layout) -> Instr:
        if core.name in layout.siblings:
            function, free = layout.siblings[core.name]
            first = layout.places[free[0]] if free else 0
            return Instr(SIBLING, core.where, fn=function, index=first)
        return Instr(VAR, core.where, index=layout.places[core.name])

    def _prim(self, core: Prim, layout: Layout) -> Instr:
        parts = [self._piece(arg, layout) for arg in core.args]
        op = (NULLARY, UNARY, BINARY, TERNARY)[len(parts)]
        named = dict(zip("abc", parts, strict=False))
        return Instr(op, core.where, fn=self._operator(core.op), value=core.op, **named)
