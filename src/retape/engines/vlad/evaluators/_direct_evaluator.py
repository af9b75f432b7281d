"""The direct-style evaluator for converted code: Figs. 9, 10 and 23.

`evaluators/_cps_convert` has made every call a tail call, so that one loop suffices: a
term runs in an environment, with a continuation that is a closure of the program's own
kind.
"""

from collections.abc import Iterator
from typing import Any

from retape.engines.vlad.evaluators._code import Instr
from retape.engines.vlad.evaluators._cps_convert import (
    BINARY,
    BRANCH,
    CALL,
    CONST,
    GROUP,
    HALTED,
    MAKE,
    NEXT,
    NULLARY,
    PUSH,
    TERNARY,
    UNARY,
    VAR,
)
from retape.engines.vlad.evaluators._cps_interpreter import NO_LIMIT
from retape.engines.vlad.evaluators._machine import Capsule, Done
from retape.engines.vlad.evaluators._run_errors import Failed, entering, run_error
from retape.engines.vlad.language._builtins import BUILTIN_SOURCE
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.values._match import Environment
from retape.engines.vlad.values._primitives import World
from retape.engines.vlad.values._values import Closure, Mismatch, Value, show_atom


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
