"""What a variable stands for while it is converted, and terms of it.

An atom, a function that is only called, or a pair that may never be built.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Close,
    Cont,
    FunRef,
    Jump,
    Let,
    Lit,
    Lowered,
    Quoted,
    Register,
    Return,
    Site,
    Term,
    Tick,
)
from retape.engines.vlad.language._core import Lambda, Pattern
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import CONS


@dataclass(frozen=True, slots=True)
class TopLevel:
    """A definition or builtin, where it is only mentioned."""

    name: str


@dataclass(frozen=True, slots=True)
class Known:
    """A local function that is only called; or a sibling in an escaping group.

    `env` holds the group's variables, if a sibling may have to become a closure.
    """

    index: int
    source: Lambda
    env: tuple[Register, ...] | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair that has not been built: an argument tuple on its way to a parameter."""

    car: "Denoted"
    cdr: "Denoted"


Denoted = Atom | TopLevel | Known | Pair
Env = dict[str, Denoted]
Facts = dict[Atom, tuple[Atom, Atom]]
"""The parts of variables that are known to be pairs."""

Rest = Callable[[Denoted, Facts], Term]


@dataclass(frozen=True, slots=True)
class To:
    """Deliver a value to a named continuation."""

    cont: str


RETURN = None
Context = Rest | To | None
"""What becomes of a value: the rest of a term, a continuation, or a return."""


class Builder:
    """Makes the terms of one module.

    Args:
        module: Where quoted data and places go.
        reference: The number of the function of a definition.
    """

    def __init__(self, module: Lowered, reference: Callable[[str], int]) -> None:
        self.module = module
        self._reference = reference
        self._count = 0

    def fresh(self, name: str) -> Register:
        self._count += 1
        return Register(f"{name.rsplit('.', 1)[0]}.{self._count}")

    def site(
        self, where: Where, name: str | None = None, pattern: Pattern | None = None
    ) -> int:
        self.module.sites.append(Site(where, name, pattern))
        return len(self.module.sites) - 1

    def atom(self, d: Denoted, rest: Callable[[Atom], Term]) -> Term:
        """Make a value of what is denoted."""
        match d:
            case TopLevel():
                return rest(FunRef(self._reference(d.name)))
            case Known():
                assert d.env is not None, "only functions that escape become values"
                if not d.env:
                    return rest(FunRef(d.index))
                var = self.fresh(d.source.name or "closure")
                return Close(var, d.index, d.env, rest(var))
            case Pair():
                return self.atom(
                    d.car,
                    lambda car: self.atom(
                        d.cdr,
                        lambda cdr: self.cons(car, cdr, {}, lambda v, _: rest(v)),
                    ),
                )
            case _:
                return rest(d)

    def atoms(
        self, ds: Sequence[Denoted], rest: Callable[[tuple[Atom, ...]], Term]
    ) -> Term:
        if not ds:
            return rest(())
        return self.atom(
            ds[0], lambda a: self.atoms(ds[1:], lambda more: rest((a, *more)))
        )

    def cons(
        self, car: Atom, cdr: Atom, facts: Facts, rest: Callable[[Atom, Facts], Term]
    ) -> Term:
        var = self.fresh("pair")
        known = {**facts, var: (car, cdr)}
        return Let(var, CONS, (car, cdr), -1, rest(var, known))

    def settle(self, d: Denoted, facts: Facts, rest: Rest) -> Term:
        """Build a pair that is about to get a name, and remember its parts."""
        if not isinstance(d, Pair):
            return rest(d, facts)
        return self.settle(
            d.car,
            facts,
            lambda car, f: self.settle(
                d.cdr,
                f,
                lambda cdr, g: self.atoms(
                    (car, cdr), lambda ab: self.cons(ab[0], ab[1], g, rest)
                ),
            ),
        )

    def deliver(self, d: Denoted, facts: Facts, context: Context) -> Term:
        if callable(context):
            return context(d, facts)
        if context is None:
            return self.atom(d, lambda a: Return((a,)))
        return self.atom(d, lambda a: Jump(context.cont, (a,)))

    def named(
        self,
        context: Context,
        facts: Facts,
        where: Where,
        rest: Callable[[str | None], Term],
    ) -> Term:
        """Give a context a name that a call or two branches can use."""
        if context is None:
            return rest(None)
        if isinstance(context, To):
            return rest(context.cont)
        name, param = self.fresh("k"), self.fresh("v")
        return Cont(name, (param,), context(param, facts), rest(name), where)

    def constant(self, value: Any) -> Atom:
        if not isinstance(value, tuple) or not value:
            return Lit(value)
        self.module.quoted.append(value)
        return Quoted(len(self.module.quoted) - 1)


def tick(steps: int, body: Term) -> Term:
    """Count steps, in one place where several follow one another."""
    if isinstance(body, Tick):
        return Tick(steps + body.steps, body.body)
    return Tick(steps, body)
