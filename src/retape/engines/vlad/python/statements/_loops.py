"""Loops: a function of the variables that its body assigns.

    while t: body; rest     (letrec ((loop (x ...) (if t body rest))) (loop x ...))

where `body` ends in `(loop x' ...)`, and so does `continue`; `break` is a call of what
follows. The types at the head are a fixed point: they start as those before the loop,
the body is translated with them, and the types at its ends are joined in, until nothing
changes.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retape.engines.vlad.language._core import Core, If, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.read._names import assigned
from retape.engines.vlad.python.read._variables import Variables
from retape.engines.vlad.python.statements._joins import (
    After,
    Emit,
    JoinPoint,
    common,
    only,
)

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body

MAX_PASSES = 30


@dataclass(frozen=True, slots=True)
class Exits:
    """The targets of `continue` and `break`."""

    again: After
    out: After


@dataclass(frozen=True, slots=True)
class Steering:
    """The head of a kind of loop.

    Attributes:
        test: Whether to go on, by the variables; `None` for a loop without a test.
        enter: What precedes the body, such as binding the variable of a `for`.
        counter: A hidden variable that changes at the end of the body.
        advance: Its next value.
    """

    test: Callable[[Variables], Core | None]
    enter: Callable[[Variables, After], Emit] = lambda env, body: body(env)
    counter: str | None = None
    advance: Callable[[Variables], Core] | None = None


@dataclass(frozen=True, slots=True)
class _Pass:
    """A loop's body, translated with the types that are assumed at its head."""

    inside: Variables
    again: JoinPoint
    out: JoinPoint
    test: Core | None
    emit: Emit


class Loops:
    """Terms of loops."""

    def __init__(self, owner: "Body") -> None:
        self._owner = owner

    def while_(
        self, node: ast.While, env: Variables, go: After, exits: Exits | None
    ) -> Emit:
        """`while t: body`."""
        owner = self._owner
        always = isinstance(node.test, ast.Constant) and node.test.value is True

        def test(inner: Variables) -> Core | None:
            return None if always else owner.conditions.condition(node.test, inner)

        return self.loop(node, Steering(test), env, go, exits)

    def loop(
        self,
        node: ast.For | ast.While,
        steering: Steering,
        env: Variables,
        go: After,
        exits: Exits | None,
    ) -> Emit:
        """A loop of any kind, and what follows it; `exits` are of the one around."""
        names = [each for each in assigned([node]) if each in env]
        if steering.counter is not None:
            names.append(steering.counter)
        head = dict(env)
        for _ in range(MAX_PASSES):
            found = self._translate(node, steering, names, head)
            joined = self._at_head(node, steering, names, head, found.again)
            if joined == head:
                return self._closed(node, found, names, env, (go, exits))
            head = joined
        self._owner.refuse(node, "the types of this loop's variables do not settle")

    def _translate(
        self,
        node: ast.For | ast.While,
        steering: Steering,
        names: list[str],
        head: Variables,
    ) -> _Pass:
        owner, where = self._owner, self._owner.text.where(node)
        inside = dict(head)
        for each in names:
            inside[each] = replace(head[each], name=owner.build.fresh(each))
        again = JoinPoint(owner.build.fresh("loop"), variables=names)
        out = JoinPoint(owner.build.fresh("done"))
        test = steering.test(inside)

        def back(env: Variables) -> Emit:
            return self._back(again, env, where, steering)

        def leave(env: Variables) -> Emit:
            return out.arrive(owner, env, where)

        def body(env: Variables) -> Emit:
            return owner.block(node.body, env, back, Exits(back, leave))

        return _Pass(inside, again, out, test, steering.enter(inside, body))

    def _at_head(
        self,
        node: ast.AST,
        steering: Steering,
        names: list[str],
        head: Variables,
        again: JoinPoint,
    ) -> Variables:
        """The facts at the head, after the ends of the body are joined in."""
        joined = dict(head)
        for each in names:
            for end in again.envs:
                variable = common(self._owner, each, joined[each], end[each], node)
                # A counter that goes up is never below where it starts.
                least = joined[each].least if each == steering.counter else None
                joined[each] = replace(variable, name=head[each].name, least=least)
        # An array may get a second name where it is not assigned: `c = b`.
        for each in joined.keys() - set(names):
            owned = joined[each].owned and all(end[each].owned for end in again.envs)
            joined[each] = replace(joined[each], owned=owned)
        return joined

    def _closed(
        self,
        node: ast.For | ast.While,
        found: _Pass,
        names: list[str],
        env: Variables,
        ahead: tuple[After, Exits | None],
    ) -> Emit:
        """The loop as a function, its first call, and what follows."""
        owner, where = self._owner, self._owner.text.where(node)
        again, out, test = found.again, found.out, found.test
        go, exits = ahead
        # Without a test the loop is left by `break` alone, which sees the body's
        # variables; with one, only those from before the loop surely have a value.
        leave = kept = None
        if test is not None:
            kept, at_end = set(env), only(found.inside, env)
            leave = owner.block(
                node.orelse, at_end, lambda e: out.arrive(owner, e, where), exits
            )
        out.follow(owner, node, env, lambda e: go(only(e, kept)))

        def emit() -> Core:
            inside = found.emit()
            if test is not None:
                assert leave is not None
                inside = If(where, test, inside, leave())
            first = [Var(where, env[each].name) for each in names]
            params = [found.inside[each].name for each in names]
            start = owner.build.call(where, Var(where, again.name), first)
            looped = owner.build.letrec(where, again.name, params, inside, start)
            return out.around(owner, where, lambda: looped)

        return emit

    def _back(
        self, again: JoinPoint, env: Variables, where: Where, steering: Steering
    ) -> Emit:
        """The end of the body: back to the head."""
        if steering.counter is None or steering.advance is None:
            return again.arrive(self._owner, env, where)
        build, value = self._owner.build, steering.advance(env)
        name = build.fresh("i")
        moved = {**env, steering.counter: replace(env[steering.counter], name=name)}
        call = again.arrive(self._owner, moved, where)
        return lambda: build.let_var(where, name, value, call())
