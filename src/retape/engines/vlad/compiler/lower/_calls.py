"""Calls: of known functions, of closures, and of what is replaced by its body."""

from collections.abc import Callable

from retape.engines.vlad.compiler.ir._ir import Apply, Call, Term
from retape.engines.vlad.compiler.lower._arguments import Taking
from retape.engines.vlad.compiler.lower._builder import Builder
from retape.engines.vlad.compiler.lower._denoted import (
    Context,
    Denoted,
    Env,
    Facts,
    Known,
    TopLevel,
)
from retape.engines.vlad.compiler.lower._functions import Functions
from retape.engines.vlad.compiler.lower._inline import Inlining
from retape.engines.vlad.language._builtins import is_builtin
from retape.engines.vlad.language._core import Core, Lambda, pattern_names
from retape.engines.vlad.language._diagnostics import Where

Expression = Callable[[Core, Env, Facts, Context, Where], Term]
"""The conversion of an expression."""


class Calls:
    """Converts calls whose function and argument are denoted."""

    def __init__(
        self, build: Builder, functions: Functions, expression: Expression
    ) -> None:
        self._build = build
        self._functions = functions
        self._taking = Taking(build)
        self._expression = expression
        self._inlining = Inlining(functions.definitions)

    def begin(self) -> None:
        """Begin a function's body."""
        self._inlining.begin()

    def call(
        self, f: Denoted, x: Denoted, facts: Facts, context: Context, where: Where
    ) -> Term:
        """(20d): a call of a known function, or of a closure."""
        if isinstance(f, TopLevel):
            source = self._functions.definitions[f.name]
            if self._inlining.enter(f.name):
                self._functions.analyse_once(source)
                at = where if is_builtin(source) else source.where
                return self.inline(source, x, {}, facts, context, (where, at))
            return self.direct(
                self._functions.global_(f.name), source, x, facts, context, where
            )
        if isinstance(f, Known):
            return self.direct(f.index, f.source, x, facts, context, where)
        site = self._build.site(where)
        return self._build.named(
            context,
            facts,
            where,
            lambda cont: self._build.atoms(
                (f, x), lambda fx: Apply(fx[0], fx[1], cont, site)
            ),
        )

    def direct(
        self,
        index: int,
        source: Lambda,
        x: Denoted,
        facts: Facts,
        context: Context,
        where: Where,
    ) -> Term:
        site = self._build.site(where, source.name, source.param)

        def call(cont: str | None) -> Term:
            return self._taking.take(
                source.param,
                x,
                facts,
                (site, True),
                lambda parts, _: self._build.atoms(
                    parts, lambda a: Call(index, a, cont)
                ),
            )

        return self._build.named(context, facts, where, call)

    def inline(
        self,
        fun: Lambda,
        arg: Denoted,
        env: Env,
        facts: Facts,
        context: Context,
        places: tuple[Where, Where],
    ) -> Term:
        """A function's body in the place of its call."""
        call, at = places
        site = self._build.site(call, fun.name, fun.param)
        names = pattern_names(fun.param)

        def body(parts: tuple[Denoted, ...], known: Facts) -> Term:
            return self._bind(
                list(zip(names, parts, strict=True)), env, fun.body, known, context, at
            )

        return self._taking.take(fun.param, arg, facts, (site, True), body)

    def _bind(
        self,
        pairs: list[tuple[str, Denoted]],
        env: Env,
        core: Core,
        facts: Facts,
        context: Context,
        at: Where,
    ) -> Term:
        if not pairs:
            return self._expression(core, env, facts, context, at)
        (name, d), *rest = pairs
        return self._build.settle(
            d,
            facts,
            lambda v, known: self._bind(
                rest, {**env, name: v}, core, known, context, at
            ),
        )
