"""Pass: the core language to continuation-passing style (Figs. 20 and 22).

    (+ x (f y))  ->  tick 4; f(y) -> j   with   cont j(v) = tick 4; let w = + x v in ...

The conversion is Fig. 22's, with three differences. A continuation of the converter is
a Python function, so that no administrative redex is made; an argument tuple that the
callee takes apart at once is never built; and calls of builtins and of small functions
that do not recurse are replaced by their bodies. The steps are those of Fig. 14 in
every case: what is not executed is still counted.

Longer than other modules: it is one recursion, whose clauses all call one another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retape.engines.vlad._builtins import BUILTINS, OPERATORS, is_builtin
from retape.engines.vlad._fault import Where
from retape.engines.vlad._program import Program
from retape.engines.vlad._syntax import (
    App,
    Const,
    Core,
    Global,
    If,
    Lambda,
    Letrec,
    Pattern,
    PConst,
    PPair,
    Prim,
    PVar,
    Var,
    pattern_names,
)
from retape.engines.vlad.compiler._escape import Escapes
from retape.engines.vlad.compiler._inline import Inlining
from retape.engines.vlad.compiler._ir import (
    Apply,
    Atom,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    FunRef,
    Jump,
    Let,
    Lit,
    Match,
    Module,
    Operate,
    Quoted,
    Return,
    Site,
    Term,
    Tick,
    Uncons,
)


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
    env: tuple[str, ...] | None


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


def tick(steps: int, body: Term) -> Term:
    """Count steps, in one place where several follow one another."""
    if isinstance(body, Tick):
        return Tick(steps + body.steps, body.body)
    return Tick(steps, body)


class Lowering:
    """One program's conversion."""

    def __init__(self, program: Program) -> None:
        self.module = Module()
        self.definitions = {**BUILTINS, **program.definitions}
        self.roots = program.roots
        self.inlining = Inlining(self.definitions)
        self._globals: dict[str, int] = {}
        self._lambdas: dict[int, int] = {}
        self._groups: dict[int, tuple[int, ...]] = {}
        self._escapes: dict[int, bool] = {}
        self._roots: list[object] = []
        self._pending: list[tuple[int, Lambda, Env, tuple[str, ...]]] = []
        self._count = 0
        self._functions = 0

    def lower(self, expressions: Sequence[Core]) -> Module:
        """Convert the expressions and roots, with all definitions they can reach."""
        for core in expressions:
            entry = Lambda(core.where, None, PConst(()), core, ())
            self._roots.append(entry)
            self._analyse(core)
            self.module.entries.append(self._later(entry, {}, ()))
        for name in self.roots:
            self.module.definitions[name] = self._global(name)
        while self._pending:
            index, source, env, free = self._pending.pop()
            self.module.functions[index] = self._function(index, source, env, free)
        return self.module

    # names and numbers

    def fresh(self, name: str) -> str:
        self._count += 1
        return f"{name.rsplit('.', 1)[0]}.{self._count}"

    def _site(
        self, where: Where, name: str | None = None, pattern: Pattern | None = None
    ) -> int:
        self.module.sites.append(Site(where, name, pattern))
        return len(self.module.sites) - 1

    def _number(self) -> int:
        self._functions += 1
        return self._functions - 1

    def _analyse(self, core: Core) -> None:
        escapes = Escapes(core)
        for group in escapes.groups:
            self._escapes[group] = True

    def _later(self, source: Lambda, env: Env, free: tuple[str, ...]) -> int:
        index = self._number()
        self._pending.append((index, source, env, free))
        return index

    def _global(self, name: str) -> int:
        if name not in self._globals:
            source = self.definitions[name]
            self._analyse(source.body)
            self._globals[name] = self._later(source, {}, ())
        return self._globals[name]

    def _function(
        self, index: int, source: Lambda, env: Env, free: tuple[str, ...]
    ) -> Fun:
        names = pattern_names(source.param)
        params = tuple(self.fresh(name) for name in names)
        inner = {**env, **dict(zip(names, params, strict=True))}
        body = self._core(source.body, inner, {}, RETURN, source.where)
        site = self._site(_NOWHERE, source.name, source.param)
        return Fun(index, source.name, source.param, params, free, site, body)

    # values

    def _atom(self, d: Denoted, rest: Callable[[Atom], Term]) -> Term:
        """Make a value of what is denoted."""
        match d:
            case TopLevel():
                return rest(FunRef(self._global(d.name)))
            case Known():
                assert d.env is not None, "only functions that escape become values"
                if not d.env:
                    return rest(FunRef(d.index))
                var = self.fresh(d.source.name or "closure")
                return Close(var, d.index, d.env, rest(var))
            case Pair():
                return self._atom(
                    d.car,
                    lambda car: self._atom(
                        d.cdr,
                        lambda cdr: self._cons(car, cdr, {}, lambda v, _: rest(v)),
                    ),
                )
            case _:
                return rest(d)

    def _atoms(
        self, ds: Sequence[Denoted], rest: Callable[[tuple[Atom, ...]], Term]
    ) -> Term:
        if not ds:
            return rest(())
        return self._atom(
            ds[0], lambda a: self._atoms(ds[1:], lambda more: rest((a, *more)))
        )

    def _cons(
        self, car: Atom, cdr: Atom, facts: Facts, rest: Callable[[Atom, Facts], Term]
    ) -> Term:
        var = self.fresh("pair")
        known = {**facts, var: (car, cdr)}
        return Let(var, "cons", (car, cdr), -1, rest(var, known))

    def _settle(self, d: Denoted, facts: Facts, rest: Rest) -> Term:
        """Build a pair that is about to get a name, and remember its parts."""
        if not isinstance(d, Pair):
            return rest(d, facts)
        return self._settle(
            d.car,
            facts,
            lambda car, f: self._settle(
                d.cdr,
                f,
                lambda cdr, g: self._atoms(
                    (car, cdr), lambda ab: self._cons(ab[0], ab[1], g, rest)
                ),
            ),
        )

    def _deliver(self, d: Denoted, facts: Facts, context: Context) -> Term:
        if callable(context):
            return context(d, facts)
        if context is None:
            return self._atom(d, Return)
        return self._atom(d, lambda a: Jump(context.cont, a))

    def _named(
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
        return Cont(name, param, context(param, facts), rest(name), where)

    # expressions

    def _core(
        self, core: Core, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        """Convert an expression; each one that is entered counts one step."""
        match core:
            case Const():
                return tick(
                    1, self._deliver(self._constant(core.value), facts, context)
                )
            case Var():
                return tick(1, self._deliver(env[core.name], facts, context))
            case Global():
                return tick(1, self._deliver(TopLevel(core.name), facts, context))
            case Lambda():
                return tick(1, self._lambda(core, env, facts, context))
            case Letrec():
                return tick(1, self._letrec(core, env, facts, context, at))
            case If():
                return tick(1, self._if(core, env, facts, context, at))
            case App():
                return tick(1, self._app(core, env, facts, context, at))
            case Prim():
                return tick(1, self._prim(core, env, facts, context, at))

    def _constant(self, value: Any) -> Atom:
        if not isinstance(value, tuple) or not value:
            return Lit(value)
        self.module.quoted.append(value)
        return Quoted(len(self.module.quoted) - 1)

    def _if(
        self, core: If, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        def branch(cont: str | None) -> Term:
            target = RETURN if cont is None else To(cont)

            def test(d: Denoted, known: Facts) -> Term:
                return self._atom(
                    d,
                    lambda a: Branch(
                        a,
                        self._core(core.then, env, known, target, at),
                        self._core(core.other, env, known, target, at),
                    ),
                )

            return self._core(core.test, env, facts, test, at)

        return self._named(context, facts, core.where, branch)

    def _app(
        self, core: App, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        fun = core.fun
        if isinstance(fun, Lambda):
            return tick(1, self._let(core, fun, env, facts, context, at))
        return self._core(
            fun,
            env,
            facts,
            lambda f, known: self._core(
                core.arg,
                env,
                known,
                lambda x, more: self._call(f, x, more, context, core.where),
                at,
            ),
            at,
        )

    def _let(
        self,
        core: App,
        fun: Lambda,
        env: Env,
        facts: Facts,
        context: Context,
        at: Where,
    ) -> Term:
        return self._core(
            core.arg,
            env,
            facts,
            lambda x, known: self._inline(
                fun, x, env, known, context, (core.where, at)
            ),
            at,
        )

    def _inline(
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
        site = self._site(call, fun.name, fun.param)
        names = pattern_names(fun.param)

        def body(parts: tuple[Denoted, ...], known: Facts) -> Term:
            return self._bind(
                list(zip(names, parts, strict=True)), env, fun.body, known, context, at
            )

        return self._take(fun.param, arg, facts, (site, True), body)

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
            return self._core(core, env, facts, context, at)
        (name, d), *rest = pairs
        return self._settle(
            d,
            facts,
            lambda v, known: self._bind(
                rest, {**env, name: v}, core, known, context, at
            ),
        )

    def _take(
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
                return self._atom(
                    d, lambda a: self._uncons(pattern, a, facts, place, rest)
                )
            case _:
                assert isinstance(pattern, PConst)
                constant = Lit(pattern.value)
                if isinstance(d, Lit) and same_literal(d, constant):
                    return rest((), facts)
                site, whole = place
                return self._atom(
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
        if a in facts and isinstance(a, str):
            car, cdr = facts[a]
            return self._take_both(pattern, car, cdr, facts, place, rest)
        left, right = self.fresh("car"), self.fresh("cdr")
        known = {**facts, a: (left, right)} if isinstance(a, str) else facts
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
        return self._take(
            pattern.car,
            car,
            facts,
            inner,
            lambda left, f: self._take(
                pattern.cdr, cdr, f, inner, lambda right, g: rest((*left, *right), g)
            ),
        )

    def _call(
        self, f: Denoted, x: Denoted, facts: Facts, context: Context, where: Where
    ) -> Term:
        """(20d): a call of a known function, or of a closure."""
        if isinstance(f, TopLevel):
            source = self.definitions[f.name]
            if self.inlining.enter(f.name):
                self._analyse_once(source)
                at = where if is_builtin(source) else source.where
                return self._inline(source, x, {}, facts, context, (where, at))
            return self._direct(self._global(f.name), source, x, facts, context, where)
        if isinstance(f, Known):
            return self._direct(f.index, f.source, x, facts, context, where)
        site = self._site(where)
        return self._named(
            context,
            facts,
            where,
            lambda cont: self._atoms(
                (f, x), lambda fx: Apply(fx[0], fx[1], cont, site)
            ),
        )

    def _analyse_once(self, source: Lambda) -> None:
        if id(source) not in self._groups:
            self._groups[id(source)] = ()
            self._analyse(source.body)

    def _direct(
        self,
        index: int,
        source: Lambda,
        x: Denoted,
        facts: Facts,
        context: Context,
        where: Where,
    ) -> Term:
        site = self._site(where, source.name, source.param)

        def call(cont: str | None) -> Term:
            return self._take(
                source.param,
                x,
                facts,
                (site, True),
                lambda parts, _: self._atoms(parts, lambda a: Call(index, a, cont)),
            )

        return self._named(context, facts, where, call)

    def _prim(
        self, core: Prim, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        """(20f), (20g), (20h-j)."""
        where = at if is_builtin_place(core.where) else core.where

        def finish(ds: tuple[Denoted, ...], known: Facts) -> Term:
            if core.op == "cons":
                return self._deliver(Pair(ds[0], ds[1]), known, context)
            site = self._site(where)
            if core.op in OPERATORS:
                return self._named(
                    context,
                    known,
                    where,
                    lambda cont: self._atoms(
                        ds, lambda a: Operate(core.op, (a[0], a[1], a[2]), cont, site)
                    ),
                )
            var = self.fresh("t")
            return self._atoms(
                ds,
                lambda a: Let(
                    var, core.op, a, site, self._deliver(var, known, context)
                ),
            )

        return self._operands(core.args, env, facts, (), finish, at)

    def _operands(
        self,
        args: Sequence[Core],
        env: Env,
        facts: Facts,
        done: tuple[Denoted, ...],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
        at: Where,
    ) -> Term:
        if not args:
            return rest(done, facts)
        return self._core(
            args[0],
            env,
            facts,
            lambda d, known: self._operands(args[1:], env, known, (*done, d), rest, at),
            at,
        )

    # functions

    def _lambda(self, core: Lambda, env: Env, facts: Facts, context: Context) -> Term:
        """(20c): a closure, or only a name for a function that is only called."""
        if id(core) not in self._escapes:
            index = self._number()
            fun = self._function(index, core, env, ())
            body = self._deliver(Known(index, core, None), facts, context)
            return Fix((fun,), body)
        if id(core) not in self._lambdas:
            self._roots.append(core)
            inner, free = self._environment(core.free)
            self._lambdas[id(core)] = self._later(core, inner, free)
        index = self._lambdas[id(core)]
        if not core.free:
            return self._deliver(FunRef(index), facts, context)
        var = self.fresh(core.name or "closure")
        return self._atoms(
            [env[name] for name in core.free],
            lambda atoms: Close(var, index, atoms, self._deliver(var, facts, context)),
        )

    def _environment(self, free: tuple[str, ...]) -> tuple[Env, tuple[str, ...]]:
        names = tuple(self.fresh(name) for name in free)
        return dict(zip(free, names, strict=True)), names

    def _letrec(
        self, core: Letrec, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        if id(core) in self._escapes:
            return self._closed_group(core, env, facts, context, at)
        indices = [self._number() for _ in core.names]
        known = {
            name: Known(index, source, None)
            for name, index, source in zip(
                core.names, indices, core.lambdas, strict=True
            )
        }
        inner: Env = {**env, **known}
        funs = tuple(
            self._function(index, source, inner, ())
            for index, source in zip(indices, core.lambdas, strict=True)
        )
        return Fix(funs, self._core(core.body, inner, facts, context, at))

    def _closed_group(
        self, core: Letrec, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        """Functions that escape: each a closure over the variables of the group."""
        if id(core) not in self._groups:
            self._roots.append(core)
            self._groups[id(core)] = self._lift(core)
        indices = self._groups[id(core)]
        if not core.free:
            refs: Env = {n: FunRef(i) for n, i in zip(core.names, indices, strict=True)}
            return self._core(core.body, {**env, **refs}, facts, context, at)

        def close(atoms: tuple[Atom, ...]) -> Term:
            names = {name: self.fresh(name) for name in core.names}
            term = self._core(core.body, {**env, **names}, facts, context, at)
            for name, index in zip(core.names, indices, strict=True):
                term = Close(names[name], index, atoms, term)
            return term

        return self._atoms([env[name] for name in core.free], close)

    def _lift(self, core: Letrec) -> tuple[int, ...]:
        inner, free = self._environment(core.free)
        indices = tuple(self._number() for _ in core.names)
        for name, index, source in zip(core.names, indices, core.lambdas, strict=True):
            inner[name] = Known(index, source, free)
        for index, source in zip(indices, core.lambdas, strict=True):
            self._pending.append((index, source, inner, free))
        return indices


def is_builtin_place(where: Where) -> bool:
    """Whether a place is that of no text at all, but of a builtin."""
    return where.source is _NOWHERE.source


def same_literal(a: Lit, b: Lit) -> bool:
    """Whether two literals are the same constant: `#t` is not `1`."""
    return type(a.value) is type(b.value) and a.value == b.value


_NOWHERE = BUILTINS["+"].where
