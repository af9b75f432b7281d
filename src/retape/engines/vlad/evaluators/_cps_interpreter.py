"""The CPS evaluator: Figs. 14 (5a-i), 15 (5l, 5m) and 19 (6r).

The evaluator's registers are an expression `e`, its environment, a continuation `k`,
the step count `n` and the step limit. A continuation is a linked list of frames, each a
tuple `(kind, code, data, next)`: nothing in it is hidden from reverse mode, and no
recursion of the program is a recursion of Python. When the count reaches the limit, the
registers are the capsule (5b).

The core language becomes its code first: names are places in an environment.

    (lambda (x) (* x y))  ->  MAKE function [captures: place of y]
                              function: 2 places; BINARY * (place 0) (place 1)

What a function of a letrec holds stands at places one behind the other, so that one
slice of the environment makes a sibling.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from retape.engines.vlad.evaluators._code import Instr, Layout, Translator
from retape.engines.vlad.evaluators._machine import Capsule, Done
from retape.engines.vlad.evaluators._run_errors import (
    Failed,
    chain,
    entering,
    run_error,
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
)
from retape.engines.vlad.language._diagnostics import RunError, Where
from retape.engines.vlad.values._primitives import World
from retape.engines.vlad.values._values import (
    Closure,
    Environment,
    Mismatch,
    Value,
    show_atom,
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


NO_LIMIT = -1
"""The limit that no count reaches: the paper's infinity."""

(K_ARG, K_CALL, K_LEFT, K_RIGHT, K_IF, K_UNARY, K_FIRST, K_SECOND, K_THIRD) = range(9)
K_HALT = 9

Frames = Any
"""A continuation: `(kind, code, data, next)`, and so on to `HALT`."""

HALT: Frames = (K_HALT, None, None, None)


class Interpreter:
    """Runs linked code; a `Machine`'s evaluator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.site: Where | None = None

    def evaluate(self, code: Instr) -> Done:
        """Run an expression without a limit."""
        outcome = self._run(code, (), HALT, 0, NO_LIMIT)
        assert isinstance(outcome, Done)
        return outcome

    def apply(
        self, function: Value, argument: Value, limit: int = NO_LIMIT
    ) -> Done | Capsule:
        """A k n l f v, of (5a), with the continuation that returns."""
        code, env = self._enter(function, argument, HALT)
        return self._run(code, env, HALT, 0, limit)

    def resume(self, capsule: Capsule, limit: int = NO_LIMIT) -> Done | Capsule:
        """Go on from a capsule, counting from zero (7c)."""
        self.world.rewind(capsule.mark)
        if capsule.code is None:
            return self.apply(capsule.env[1], capsule.env[0], limit)
        return self._run(capsule.code, capsule.env, capsule.k, 0, limit)

    def _enter(
        self, function: Value, argument: Value, k: Frames
    ) -> tuple[Instr, Environment]:
        if type(function) is not Closure:
            self._fail(f"`{show_atom(function)}` is applied but is no function", k)
        try:
            return function.code.body, function.code.bind(argument) + function.env
        except Mismatch as error:
            self._fail(entering(function, error), k)

    def _fail(self, message: str, k: Frames) -> NoReturn:
        raise RunError(message, self.site, chain(waiting_frames(k)))

    def _run(
        self, e: Instr, env: Environment, k: Frames, n: int, limit: int
    ) -> Done | Capsule:
        """One loop: down into expressions, then back up through frames."""
        try:
            return self._loop(e, env, k, n, limit)
        except Failed as failed:
            raise run_error(failed, self.site, waiting_frames(failed.k)) from None

    def _loop(self, e: Any, env: Any, k: Any, n: int, limit: int) -> Done | Capsule:
        """The clauses of the evaluator, by how often programs enter them.

        One long function on purpose: a call for each step would cost more than it.
        """
        kind, data = K_HALT, None
        try:
            while True:
                if n == limit:  # (5b)
                    return Capsule(e, env, k, self.world.mark)
                n += 1
                op = e.op
                if op == VAR:  # (5d)
                    v = env[e.index]
                elif op == CONST:  # (5c)
                    v = e.value
                elif op == APP:  # (5f)
                    k = (K_ARG, e, env, k)
                    e = e.a
                    continue
                elif op == BINARY:  # (5i)
                    k = (K_LEFT, e, env, k)
                    e = e.a
                    continue
                elif op == IF:  # (5g)
                    k = (K_IF, e, env, k)
                    e = e.a
                    continue
                elif op == MAKE:  # (5e)
                    v = Closure(e.value, e.gather(env))
                elif op == UNARY:  # (5h)
                    k = (K_UNARY, e, None, k)
                    e = e.a
                    continue
                elif op == SIBLING:
                    first = e.index
                    v = Closure(e.fn, env[first : first + e.fn.size])
                elif op == LETREC:
                    shared = e.gather(env)
                    env = env + tuple([Closure(f, shared) for f in e.value])
                    e = e.a
                    continue
                elif op == NULLARY:
                    v = e.fn()
                else:  # (5l), (5m), (6r)
                    k = (K_FIRST, e, env, k)
                    e = e.a
                    continue
                while True:
                    kind, e, data, k = k
                    if kind == K_RIGHT:
                        v = e.fn(data, v)
                    elif kind == K_LEFT:
                        k = (K_RIGHT, e, v, k)
                        env = data
                        e = e.b
                        break
                    elif kind == K_ARG:
                        k = (K_CALL, e, v, k)
                        env = data
                        e = e.b
                        break
                    elif kind == K_CALL:  # (5a)
                        if type(data) is not Closure:
                            raise Mismatch(
                                f"`{show_atom(data)}` is applied but is no function"
                            )
                        code = data.code
                        env = code.bind(v) + data.env
                        kind = K_HALT
                        if code.builtin:
                            self.site = e.where
                        e = code.body
                        break
                    elif kind == K_UNARY:
                        v = e.fn(v)
                    elif kind == K_IF:
                        env = data
                        e = e.c if v is False else e.b
                        break
                    elif kind == K_HALT:
                        return Done(v, n)
                    elif kind == K_FIRST:
                        k = (K_SECOND, e, (data, v), k)
                        env = data
                        e = e.b
                        break
                    elif kind == K_SECOND:
                        env, first = data
                        k = (K_THIRD, e, (first, v), k)
                        e = e.c
                        break
                    else:
                        assert kind == K_THIRD
                        v = e.fn(data[0], data[1], v)
        except Mismatch as error:
            if kind == K_CALL and type(data) is Closure:
                error = Mismatch(entering(data, error))
            raise Failed(str(error), e.where, k) from None


def waiting_frames(k: Frames) -> Iterator[Where]:
    """The places of the frames of a continuation, the innermost first."""
    while k[0] != K_HALT:
        yield k[1].where
        k = k[3]
