"""The hybrid: CPS conversion, Figs. 20 and 22, and the evaluator, Figs. 9, 10 and 23.

    (20f)  [(op e)]k  ->  check; [e](lambda3 n l x. k n l (op x))

A continuation is a target closure, `lambda3`, that holds its own continuation and the
values that the rest of the expression needs, and nothing else; reverse mode sees it as
it sees any closure. The step count and the limit, which Fig. 22 threads through every
call, are registers of the evaluator, as in Fig. 24 (22f-h); so is `k`.

A term either is entered by the check of (20k), which counts a step, or continues after
an operand's value has arrived; the latter are the bodies of `lambda3`. Every call is a
tail call then, so that one loop suffices: a term runs in an environment, with a
continuation that is a closure of the program's own kind.
"""

from collections.abc import Iterator
from typing import Any

from retape.engines.vlad.evaluators._code import Instr, Layout, Translator
from retape.engines.vlad.evaluators._cps_interpreter import NO_LIMIT
from retape.engines.vlad.evaluators._machine import Capsule, Done
from retape.engines.vlad.evaluators._run_errors import Failed, entering, run_error
from retape.engines.vlad.language._builtins import BUILTIN_SOURCE
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
from retape.engines.vlad.values._primitives import Table, World
from retape.engines.vlad.values._values import (
    Closure,
    Environment,
    Mismatch,
    Value,
    show_atom,
)

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


class Hybrid:
    """Runs converted code; a `Machine`'s evaluator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.site: Where | None = None

    def evaluate(self, term: Instr) -> Done:
        """Run an expression without a limit."""
        outcome = self._run(term, (), HALT, NO_LIMIT)
        assert isinstance(outcome, Done)
        return outcome

    def apply(
        self, function: Value, argument: Value, limit: int = NO_LIMIT
    ) -> Done | Capsule:
        """A4 (21b), with the continuation that returns: (21k), (21l)."""
        start = Instr(CALL, START, fn=None)
        return self._run(start, (argument, HALT, function), HALT, limit)

    def resume(self, capsule: Capsule, limit: int = NO_LIMIT) -> Done | Capsule:
        """Go on from a capsule, counting from zero (21h)."""
        self.world.rewind(capsule.mark)
        if capsule.code is None:
            return self.apply(capsule.env[1], capsule.env[0], limit)
        return self._run(capsule.code, capsule.env, capsule.k, limit)

    def _run(
        self, term: Instr, env: Environment, k: Closure, limit: int
    ) -> Done | Capsule:
        try:
            return self._loop(term, env, k, 0, limit)
        except Failed as failed:
            waiting = waiting_continuations(failed.k)
            raise run_error(failed, self.site, waiting) from None

    def _loop(self, e: Any, env: Any, k: Any, n: int, limit: int) -> Done | Capsule:
        """The clauses of Figs. 22 and 23. A hot loop: as one function on purpose."""
        data = None
        try:
            while True:
                op = e.op
                if op < NEXT:
                    if n == limit:  # (20k)
                        return Capsule(e, env, k, self.world.mark)
                    n += 1
                    if op == PUSH:  # (21c)
                        k = Closure(e.value, (k, *e.gather(env)))
                        e = e.a
                        continue
                    if op == VAR:
                        v = env[e.index] if e.index >= 0 else e.fn(env)
                    elif op == CONST:
                        v = e.value
                    elif op == MAKE:  # (21d)
                        v = Closure(e.value, e.gather(env))
                    elif op == GROUP:
                        shared = e.gather(env)
                        env = env + tuple([Closure(f, shared) for f in e.value])
                        e = e.a
                        continue
                    else:
                        assert op == NULLARY
                        v = e.fn()
                elif op == NEXT:
                    k = Closure(e.value, (k, *e.gather(env)))
                    e = e.a
                    continue
                elif op == CALL:  # (21f)
                    data = env[2]
                    if type(data) is not Closure:
                        raise Mismatch(
                            f"`{show_atom(data)}` is applied but is no function"
                        )
                    code = data.code
                    env = code.bind(env[0]) + data.env
                    data = None
                    if code.builtin and e.where is not START:
                        self.site = e.where
                    e = code.body
                    continue
                elif op == BINARY:
                    v = e.fn(env[2], env[0])
                elif op == BRANCH:
                    e = e.b if env[0] is False else e.a
                    continue
                elif op == UNARY:
                    v = e.fn(env[0])
                elif op == TERNARY:
                    v = e.fn(env[2], env[3], env[0])
                else:
                    assert op == HALTED
                    return Done(env[0], n)
                e = k.code  # (21e)
                env = (v, *k.env)
                k = k.env[0] if k.env else k
        except Mismatch as error:
            message = str(error)
            if data is not None and type(data) is Closure:
                message = entering(data, error)
            raise Failed(message, e.where, k) from None


START = Where(BUILTIN_SOURCE, 0)
"""The place of what no text says."""

HALT = Closure(Instr(HALTED, START), ())
"""The continuation that returns: `lambda3 n l v. v`."""


def waiting_continuations(k: Closure) -> Iterator[Where]:
    """The places of the closures that a continuation consists of, innermost first."""
    while k.env:
        yield k.code.where
        k = k.env[0]
