"""Data to the core language: all syntax is checked here, once, and all sugar removed.

A function has one parameter. Several arguments are a tuple: `(f a b c)` passes
`(cons* a b c)`, `(f)` passes `()`, and a parameter list takes the tuple apart on entry.
"""

from collections.abc import Sequence

from retape.engines.vlad.language._binding_forms import Parameters
from retape.engines.vlad.language._builtins import RESERVED
from retape.engines.vlad.language._core import (
    App,
    Const,
    Core,
    Global,
    Lambda,
    Letrec,
    Prim,
    Var,
)
from retape.engines.vlad.language._diagnostics import SyntaxFault, Where
from retape.engines.vlad.language._forms import FORMS
from retape.engines.vlad.language._names import Names, Scope
from retape.engines.vlad.language._reader import Datum, Form, Literal, Symbol, Text
from retape.engines.vlad.language._syntax_checks import (
    Definition,
    is_form,
    refuse,
    require,
    split_definition,
)
from retape.engines.vlad.operators._table import CONS, NEGATE, SUBTRACT


class Expander:
    """Expands the forms of one program; `names` keeps variables of all apart."""

    def __init__(self) -> None:
        self.names = Names()

    def definition(self, form: Form) -> tuple[str, Lambda]:
        """`(define ...)` at top level, to a name and its function."""
        name, params, body, where = split_definition(form)
        return name.name, self.function(params, body, where, None, name.name)

    def expression(self, datum: Datum, scope: Scope | None = None) -> Core:
        """Any expression."""
        match datum:
            case Literal():
                return Const(datum.where, datum.value)
            case Symbol():
                return self._variable(datum, scope)
            case Form():
                return self._form(datum, scope)
            case Text():
                refuse(
                    datum, "the language has no strings; only `include` takes a path"
                )

    def _variable(self, datum: Symbol, scope: Scope | None) -> Core:
        require(
            datum,
            datum.name not in RESERVED,
            "this word is reserved and is no variable; use it as a form",
        )
        unique = scope.find(datum.name) if scope else None
        if unique is None:
            return Global(datum.where, datum.name)
        return Var(datum.where, unique)

    def _form(self, form: Form, scope: Scope | None) -> Core:
        require(form, form.tail is None, "an expression has no dot; remove it")
        require(form, bool(form.items), "an empty list is written `'()`; quote it")
        head = form.items[0]
        if isinstance(head, Symbol) and head.name in RESERVED:
            return FORMS[head.name](self, form, scope)
        return self._apply(form.where, head, form.items[1:], scope)

    def _apply(
        self, where: Where, head: Datum, args: Sequence[Datum], scope: Scope | None
    ) -> Core:
        """`(f a ...)`: the function, then its arguments as a tuple."""
        fun = self.expression(head, scope)
        if isinstance(fun, Global) and fun.name == SUBTRACT and len(args) == 1:
            fun = Global(fun.where, NEGATE)
        return App(where, fun, self.tuple_of(where, args, scope))

    def tuple_of(
        self, where: Where, items: Sequence[Datum], scope: Scope | None
    ) -> Core:
        """`(cons* a ...)`; none at all is `()`."""
        if not items:
            return Const(where, ())
        parts = [self.expression(item, scope) for item in items]
        result = parts.pop()
        while parts:
            result = Prim(where, CONS, (parts.pop(), result))
        return result

    def function(
        self,
        params: Sequence[Datum],
        body: Sequence[Datum],
        where: Where,
        scope: Scope | None,
        name: str | None,
    ) -> Lambda:
        parameters = Parameters(self.names)
        pattern = parameters.pattern_of(params)
        inner = Scope(parameters.bound, scope, closes=True)
        return Lambda(
            where, name, pattern, self.body(body, where, inner), tuple(inner.free)
        )

    def body(self, body: Sequence[Datum], where: Where, scope: Scope | None) -> Core:
        """Definitions, then one expression."""
        definitions: list[Definition] = []
        for index, datum in enumerate(body):
            if not is_form(datum, "define"):
                rest = body[index:]
                break
            assert isinstance(datum, Form)
            definitions.append(split_definition(datum))
        else:
            raise SyntaxFault("a body ends in an expression; write one", where)
        require(rest[-1], len(rest) == 1, _ONE_EXPRESSION)
        if not definitions:
            return self.expression(rest[0], scope)
        return self.letrec(definitions, rest, where, scope)

    def letrec(
        self,
        definitions: Sequence[Definition],
        body: Sequence[Datum],
        where: Where,
        scope: Scope | None,
    ) -> Letrec:
        inner, lambdas = self._group(definitions, scope)
        free = {v: None for each in lambdas for v in each.free}
        names = tuple(inner.names.values())
        outside = tuple(v for v in free if v not in names)
        core = self.body(body, where, inner)
        return Letrec(where, names, tuple(lambdas), core, outside)

    def _group(
        self, definitions: Sequence[Definition], scope: Scope | None
    ) -> tuple[Scope, list[Lambda]]:
        parameters = Parameters(self.names)
        for name, *_ in definitions:
            parameters.bind(name)
        inner = Scope(parameters.bound, scope, closes=False)
        lambdas = [
            self.function(params, body, where, inner, name.name)
            for name, params, body, where in definitions
        ]
        return inner, lambdas


_ONE_EXPRESSION = (
    "a body is definitions and then one expression; remove the others, or combine them "
    "with `let`"
)
