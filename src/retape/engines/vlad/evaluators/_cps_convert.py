"""CPS conversion for the hybrid: Figs. 20 and 22, with closures flattened.

    (20f)  [(op e)]k  ->  check; [e](lambda3 n l x. k n l (op x))

A continuation is a target closure, `lambda3`, that holds its own continuation and the
values that the rest of the expression needs, and nothing else; reverse mode sees it as
it sees any closure. The step count and the limit, which Fig. 22 threads through every
call, are registers of the evaluator, as in Fig. 24 (22f-h); so is `k`.

A term either is entered by the check of (20k), which counts a step, or continues after
an operand's value has arrived; the latter are the bodies of `lambda3`.
"""

from typing import Any

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
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._names import FreeVariables
from retape.engines.vlad.values._primitives import Table

PUSH, VAR, CONST, MAKE, GROUP, NULLARY = range(6)
"""Terms that are entered with a check: (20b), (20a), (20c), and the others' starts."""

NEXT, CALL, UNARY, BINARY, BRANCH, TERNARY, HALTED = range(6, 13)
"""Bodies of `lambda3`: what happens when an operand's value has arrived."""

_TEMPORARY = ("%1", "%2")
"""Names of operands that wait for another; no program can write them."""


class Converter(Translator):
    """To the hybrid's code."""

    def __init__(self, definitions: dict[str, Lambda], table: Table) -> None:
        super().__init__(definitions, table)
        self._free = FreeVariables()

    def _piece(self, core: Core, layout: Layout) -> Instr:
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
                return self._closure(core, layout, CONST, MAKE)
            case Letrec():
                return self._group(core, layout, GROUP)
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
        self, core: App | Prim, args: tuple[Core, ...], op: int, layout: Layout
    ) -> Instr:
        """Evaluate operands from left to right, each in its own `lambda3`."""
        fn = self._operator(core.op) if isinstance(core, Prim) else None
        first, *rest = args
        kept = layout.needs(name for each in rest for name in self._free.of(each))
        inner = Layout((_TEMPORARY[0], "k", *kept), layout.siblings)
        body = self._rest(core.where, rest, (op, fn), inner, 1)
        return self._push(core.where, PUSH, first, body, kept, layout)

    def _rest(
        self,
        where: Where,
        rest: list[Core],
        finish: tuple[int, Any],
        layout: Layout,
        have: int,
    ) -> Instr:
        if not rest:
            return Instr(finish[0], where, fn=finish[1])
        first, *more = rest
        kept = layout.needs(name for each in more for name in self._free.of(each))
        waiting = [*_TEMPORARY[: have - 1], _TEMPORARY[have - 1]]
        newest = f"%{have + 1}"
        inner = Layout((newest, "k", *waiting, *kept), layout.siblings)
        body = self._rest(where, more, finish, inner, have + 1)
        return self._push(where, NEXT, first, body, [*waiting, *kept], layout)

    def _push(
        self,
        where: Where,
        op: int,
        first: Core,
        body: Instr,
        kept: list[str],
        layout: Layout,
    ) -> Instr:
        """Evaluate `first` with the continuation `lambda3 n l x. body`."""
        gather = layout.gather(kept)
        return Instr(op, where, a=self._piece(first, layout), value=body, gather=gather)

    def _if(self, core: If, layout: Layout) -> Instr:
        kept = layout.needs((*self._free.of(core.then), *self._free.of(core.other)))
        inner = Layout(("%1", "k", *kept), layout.siblings)
        then, other = self._piece(core.then, inner), self._piece(core.other, inner)
        body = Instr(BRANCH, core.where, a=then, b=other)
        return self._push(core.where, PUSH, core.test, body, kept, layout)
