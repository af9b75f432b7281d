"""Pass: the core language to continuation-passing style (Figs. 20 and 22).

    (+ x (f y))  ->  tick 4; f(y) -> j   with   cont j(v) = tick 4; let w = + x v in ...

The conversion is Fig. 22's, with three differences. A continuation of the converter is
a Python function, so that no administrative redex is made (Danvy and Filinski 1992); an
argument tuple that the callee takes apart at once is never built; and calls of builtins
and of small functions that do not recurse are replaced by their bodies. The steps are
those of Fig. 14 in every case: what is not executed is still counted.
"""

from collections.abc import Callable, Sequence

from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Branch,
    Close,
    Fix,
    Fun,
    FunRef,
    Let,
    Lowered,
    Operate,
    Register,
    Term,
)
from retape.engines.vlad.compiler.lower._builder import (
    RETURN,
    Builder,
    Context,
    Denoted,
    Env,
    Facts,
    Known,
    Pair,
    To,
    TopLevel,
    tick,
)
from retape.engines.vlad.compiler.lower._calls import Calls
from retape.engines.vlad.compiler.lower._functions import Functions
from retape.engines.vlad.language._builtins import BUILTINS, DERIVATIVES, NOWHERE
from retape.engines.vlad.language._core import (
    App,
    Const,
    Core,
    Global,
    If,
    Lambda,
    Letrec,
    PConst,
    Prim,
    Var,
    pattern_names,
)
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._program import Program
from retape.engines.vlad.operators._table import CONS


class Lowering:
    """One program's conversion."""

    def __init__(self, program: Program) -> None:
        self.module = Lowered(externals=program.externals)
        self.roots = program.roots
        self._build = Builder(self.module, self._reference)
        definitions = {**BUILTINS, **program.definitions}
        self._functions = Functions(definitions, self._build.fresh)
        self._calls = Calls(self._build, self._functions, self._core)

    def _reference(self, name: str) -> int:
        return self._functions.global_(name)

    def lower(self, expressions: Sequence[Core]) -> Lowered:
        """Convert the expressions and roots, with all definitions they can reach."""
        for core in expressions:
            entry = Lambda(core.where, None, PConst(()), core, ())
            self._functions.kept.append(entry)
            self._functions.analyse(core)
            self.module.entries.append(self._functions.later(entry, {}, ()))
        for name in self.roots:
            self.module.definitions[name] = self._functions.global_(name)
        while self._functions.pending:
            index, source, env, free = self._functions.pending.pop()
            self.module.functions[index] = self._function(index, source, env, free)
        return self.module

    def _function(
        self, index: int, source: Lambda, env: Env, free: tuple[Register, ...]
    ) -> Fun:
        names = pattern_names(source.param)
        params = tuple(self._build.fresh(name) for name in names)
        inner = {**env, **dict(zip(names, params, strict=True))}
        self._calls.begin()
        body = self._core(source.body, inner, {}, RETURN, source.where)
        site = self._build.site(NOWHERE, source.name, source.param)
        return Fun(index, source.name, source.param, params, free, site, body)

    def _core(
        self, core: Core, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        """Convert an expression; each one that is entered counts one step."""
        match core:
            case Const():
                return tick(
                    1,
                    self._build.deliver(
                        self._build.constant(core.value), facts, context
                    ),
                )
            case Var():
                return tick(1, self._build.deliver(env[core.name], facts, context))
            case Global():
                return tick(1, self._build.deliver(TopLevel(core.name), facts, context))
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

    def _if(
        self, core: If, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        def branch(cont: str | None) -> Term:
            target = RETURN if cont is None else To(cont)

            def test(d: Denoted, known: Facts) -> Term:
                return self._build.atom(
                    d,
                    lambda a: Branch(
                        a,
                        self._core(core.then, env, known, target, at),
                        self._core(core.other, env, known, target, at),
                    ),
                )

            return self._core(core.test, env, facts, test, at)

        return self._build.named(context, facts, core.where, branch)

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
                lambda x, more: self._calls.call(f, x, more, context, core.where),
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
            lambda x, known: self._calls.inline(
                fun, x, env, known, context, (core.where, at)
            ),
            at,
        )

    def _prim(
        self, core: Prim, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        """(20f), (20g), (20h-j)."""
        where = at if is_builtin_place(core.where) else core.where

        def finish(ds: tuple[Denoted, ...], known: Facts) -> Term:
            if core.op == CONS:
                return self._build.deliver(Pair(ds[0], ds[1]), known, context)
            site = self._build.site(where)
            if core.op in DERIVATIVES:
                return self._build.named(
                    context,
                    known,
                    where,
                    lambda cont: self._build.atoms(
                        ds, lambda a: Operate(core.op, (a[0], a[1], a[2]), cont, site)
                    ),
                )
            var = self._build.fresh("t")
            return self._build.atoms(
                ds,
                lambda a: Let(
                    var, core.op, a, site, self._build.deliver(var, known, context)
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

    def _lambda(self, core: Lambda, env: Env, facts: Facts, context: Context) -> Term:
        """(20c): a closure, or only a name for a function that is only called."""
        if id(core) not in self._functions.escapes:
            index = self._functions.number()
            fun = self._function(index, core, env, ())
            body = self._build.deliver(Known(index, core, None), facts, context)
            return Fix((fun,), body)
        if id(core) not in self._functions.lambdas:
            self._functions.kept.append(core)
            inner, free = self._functions.environment(core.free)
            self._functions.lambdas[id(core)] = self._functions.later(core, inner, free)
        index = self._functions.lambdas[id(core)]
        if not core.free:
            return self._build.deliver(FunRef(index), facts, context)
        var = self._build.fresh(core.name or "closure")
        return self._build.atoms(
            [env[name] for name in core.free],
            lambda atoms: Close(
                var, index, atoms, self._build.deliver(var, facts, context)
            ),
        )

    def _letrec(
        self, core: Letrec, env: Env, facts: Facts, context: Context, at: Where
    ) -> Term:
        if id(core) in self._functions.escapes:
            return self._closed_group(core, env, facts, context, at)
        indices = [self._functions.number() for _ in core.names]
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
        if id(core) not in self._functions.groups:
            self._functions.kept.append(core)
            self._functions.groups[id(core)] = self._functions.lift(core)
        indices = self._functions.groups[id(core)]
        if not core.free:
            refs: Env = {n: FunRef(i) for n, i in zip(core.names, indices, strict=True)}
            return self._core(core.body, {**env, **refs}, facts, context, at)

        def close(atoms: tuple[Atom, ...]) -> Term:
            names = {name: self._build.fresh(name) for name in core.names}
            term = self._core(core.body, {**env, **names}, facts, context, at)
            for name, index in zip(core.names, indices, strict=True):
                term = Close(names[name], index, atoms, term)
            return term

        return self._build.atoms([env[name] for name in core.free], close)


def is_builtin_place(where: Where) -> bool:
    """Tell whether a place is that of no text at all, but of a builtin."""
    return where.source is NOWHERE.source
