"""Calls: of known functions, of closures, and of what is replaced by its body.

Arguments are taken apart before there are pairs of them, or by tests at run time.
Builtins are replaced always, definitions if they are small and cannot reach themselves.
A budget for each function and one for the program keep that from growing them without
bound: the C compiler's time for a function grows faster than the function.
"""

from collections.abc import Callable

from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Atom,
    Call,
    Lit,
    Match,
    Register,
    Term,
    Uncons,
)
from retape.engines.vlad.compiler.lower._builder import (
    Builder,
    Context,
    Denoted,
    Env,
    Facts,
    Known,
    Pair,
    TopLevel,
)
from retape.engines.vlad.compiler.lower._functions import Functions
from retape.engines.vlad.language._builtins import is_builtin
from retape.engines.vlad.language._core import (
    Core,
    Global,
    Lambda,
    Pattern,
    PConst,
    PPair,
    PVar,
    pattern_names,
    walk,
)
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import CAR, CDR

SMALL = 40
"""Expressions in a body that is worth copying."""

BUDGET = 20_000
OF_EACH = 1_000


class Inlining:
    """Decides call by call."""

    def __init__(self, definitions: dict[str, Lambda]) -> None:
        self.definitions = definitions
        self.spent = self.spent_here = 0
        self._sizes: dict[str, int] = {}
        self._recursive: dict[str, bool] = {}

    def begin(self) -> None:
        """Begin a function."""
        self.spent_here = 0

    def enter(self, name: str) -> bool:
        """Tell whether to inline a call of this definition here, within the budget."""
        if is_builtin(self.definitions[name]):
            return True
        size = self._size(name)
        if size > SMALL or self.spent + size > BUDGET:
            return False
        if self.spent_here + size > OF_EACH:
            return False
        if self._is_recursive(name):
            return False
        self.spent += size
        self.spent_here += size
        return True

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = sum(1 for _ in walk(self.definitions[name].body))
        return self._sizes[name]

    def _is_recursive(self, name: str) -> bool:
        if name not in self._recursive:
            self._recursive[name] = name in self._reachable(name)
        return self._recursive[name]

    def _reachable(self, name: str) -> set[str]:
        seen: set[str] = set()
        pending = [name]
        while pending:
            for node in walk(self.definitions[pending.pop()].body):
                if isinstance(node, Global) and node.name not in seen:
                    seen.add(node.name)
                    pending.append(node.name)
        return seen


class Taking:
    """Takes arguments apart; `place` is a site, and whether all of it is at fault."""

    def __init__(self, build: Builder) -> None:
        self._build = build

    def take(
        self,
        pattern: Pattern,
        d: Denoted,
        facts: Facts,
        place: tuple[int, bool],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
    ) -> Term:
        """Take an argument apart: what each variable of a parameter is bound to."""
        match pattern, d:
            case PVar(), _:
                return rest((d,), facts)
            case PPair(), Pair():
                return self._take_both(pattern, d.car, d.cdr, facts, place, rest)
            case PPair(), _:
                return self._build.atom(
                    d, lambda a: self._uncons(pattern, a, facts, place, rest)
                )
            case _:
                assert isinstance(pattern, PConst)
                constant = Lit(pattern.value)
                if isinstance(d, Lit) and same_literal(d, constant):
                    return rest((), facts)
                site, whole = place
                return self._build.atom(
                    d, lambda a: Match(a, constant, site, whole, rest((), facts))
                )

    def _uncons(
        self,
        pattern: PPair,
        a: Atom,
        facts: Facts,
        place: tuple[int, bool],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
    ) -> Term:
        if a in facts and isinstance(a, Register):
            car, cdr = facts[a]
            return self._take_both(pattern, car, cdr, facts, place, rest)
        left, right = self._build.fresh(CAR), self._build.fresh(CDR)
        known = {**facts, a: (left, right)} if isinstance(a, Register) else facts
        body = self._take_both(pattern, left, right, known, place, rest)
        return Uncons(left, right, a, *place, body)

    def _take_both(
        self,
        pattern: PPair,
        car: Denoted,
        cdr: Denoted,
        facts: Facts,
        place: tuple[int, bool],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
    ) -> Term:
        inner = (place[0], False)
        return self.take(
            pattern.car,
            car,
            facts,
            inner,
            lambda left, f: self.take(
                pattern.cdr, cdr, f, inner, lambda right, g: rest((*left, *right), g)
            ),
        )


def same_literal(a: Lit, b: Lit) -> bool:
    """Tell whether two literals are the same constant: `#t` is not `1`."""
    return type(a.value) is type(b.value) and a.value == b.value


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
