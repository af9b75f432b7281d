"""Data to the core language: all syntax is checked here, once, and all sugar removed.

A function has one parameter. Several arguments are a tuple: `(f a b c)` passes
`(cons* a b c)`, `(f)` passes `()`, and a parameter list takes the tuple apart on entry.

Longer than other modules: one method for each form, all of one recursion.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from retape.engines.vlad._builtins import RESERVED
from retape.engines.vlad._fault import SyntaxFault, Where
from retape.engines.vlad._read import Datum, Form, Literal, Symbol, Text, echo
from retape.engines.vlad._scope import Names, Scope
from retape.engines.vlad._syntax import (
    App,
    Const,
    Constant,
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
)

Definition = tuple[Symbol, "Sequence[Datum]", "tuple[Datum, ...]", Where]
"""A defined name, its parameters, its body, and where it stands."""


def require(datum: Datum, holds: bool, message: str) -> None:
    """Refuse a datum: the message begins with the datum, printed back."""
    if not holds:
        refuse(datum, message)


def refuse(datum: Datum, message: str) -> NoReturn:
    raise SyntaxFault(f"`{echo(datum)}`: {message}", datum.where)


class Expander:
    """Expands the forms of one program; `names` keeps variables of all apart."""

    def __init__(self) -> None:
        self.names = Names()

    def definition(self, form: Form) -> tuple[str, Lambda]:
        """`(define ...)` at top level, to a name and its function."""
        name, params, body, where = split_definition(form)
        return name.name, self._lambda(params, body, where, None, name.name)

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
            return _FORMS[head.name](self, form, scope)
        return self._apply(form.where, head, form.items[1:], scope)

    def _apply(
        self, where: Where, head: Datum, args: Sequence[Datum], scope: Scope | None
    ) -> Core:
        """`(f a ...)`: the function, then its arguments as a tuple."""
        fun = self.expression(head, scope)
        return App(where, fun, self._tuple(where, args, scope))

    def _tuple(self, where: Where, items: Sequence[Datum], scope: Scope | None) -> Core:
        """`(cons* a ...)`; none at all is `()`."""
        if not items:
            return Const(where, ())
        parts = [self.expression(item, scope) for item in items]
        result = parts.pop()
        while parts:
            result = Prim(where, "cons", (parts.pop(), result))
        return result

    # (quote c)
    def _quote(self, form: Form, scope: Scope | None) -> Core:
        del scope
        require(form, len(form.items) == 2, "`quote` takes one datum, as in `'(1 2)`")
        return Const(form.where, constant(form.items[1]))

    # (lambda (p ...) body)
    def _lambda_form(self, form: Form, scope: Scope | None) -> Core:
        require(form, len(form.items) >= 3, "write `(lambda (p ...) body)`")
        params = form.items[1]
        if not isinstance(params, Form) or params.tail is not None:
            refuse(
                form, "the parameters of `lambda` are a list, as in `(lambda (x) x)`"
            )
        return self._lambda(params.items, form.items[2:], form.where, scope, None)

    def _lambda(
        self,
        params: Sequence[Datum],
        body: Sequence[Datum],
        where: Where,
        scope: Scope | None,
        name: str | None,
    ) -> Lambda:
        bound: dict[str, str] = {}
        pattern = self._parameters(params, bound)
        inner = Scope(bound, scope, closes=True)
        return Lambda(
            where, name, pattern, self._body(body, where, inner), tuple(inner.free)
        )

    def _parameters(self, params: Sequence[Datum], bound: dict[str, str]) -> Pattern:
        """Several parameters to one, which takes a tuple apart."""
        if not params:
            return PConst(())
        patterns = [self._pattern(p, bound) for p in params]
        result = patterns.pop()
        while patterns:
            result = PPair(patterns.pop(), result)
        return result

    def _pattern(self, datum: Datum, bound: dict[str, str]) -> Pattern:
        match datum:
            case Literal():
                return PConst(datum.value)
            case Symbol():
                return self._bind(datum, bound)
            case Form(items=(Symbol(name="quote"), Form(items=(), tail=None))):
                return PConst(())
            case Form(items=(Symbol(name="cons"), left, right), tail=None):
                return PPair(self._pattern(left, bound), self._pattern(right, bound))
            case Form(items=(Symbol(name="cons*"), *rest), tail=None) if rest:
                return self._parameters(rest, bound)
            case Form(items=(Symbol(name="list"), *rest), tail=None):
                parts = [self._pattern(p, bound) for p in rest]
                result: Pattern = PConst(())
                while parts:
                    result = PPair(parts.pop(), result)
                return result
        refuse(
            datum,
            "a parameter is a variable, a constant, `(cons p p)`, `(cons* p ...)` or "
            "`(list p ...)`; write one of these",
        )

    def _bind(self, datum: Symbol, bound: dict[str, str]) -> PVar:
        require(
            datum,
            datum.name not in RESERVED,
            "this word is reserved; rename the variable",
        )
        require(
            datum, datum.name not in bound, "this name is bound twice here; rename one"
        )
        bound[datum.name] = self.names.fresh(datum.name)
        return PVar(bound[datum.name])

    def _body(self, body: Sequence[Datum], where: Where, scope: Scope | None) -> Core:
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
        return self._letrec(definitions, rest, where, scope)

    # (letrec ((f (lambda ...)) ...) body)
    def _letrec_form(self, form: Form, scope: Scope | None) -> Core:
        bindings = self._bindings(form, "letrec")
        definitions: list[Definition] = []
        for name, value in bindings:
            definitions.append(function_definition(name, value, value))
        if not definitions:
            return self._body(form.items[2:], form.where, scope)
        return self._letrec(definitions, form.items[2:], form.where, scope)

    def _letrec(
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
        core = self._body(body, where, inner)
        return Letrec(where, names, tuple(lambdas), core, outside)

    def _group(
        self, definitions: Sequence[Definition], scope: Scope | None
    ) -> tuple[Scope, list[Lambda]]:
        bound: dict[str, str] = {}
        for name, *_ in definitions:
            self._bind(name, bound)
        inner = Scope(bound, scope, closes=False)
        lambdas = [
            self._lambda(params, body, where, inner, name.name)
            for name, params, body, where in definitions
        ]
        return inner, lambdas

    def _bindings(
        self, form: Form, word: str, at: int = 1
    ) -> list[tuple[Symbol, Datum]]:
        """The `((name e) ...)` of a binding form whose body is not empty."""
        usage = f"write `({word} ((name e) ...) body)`"
        require(form, len(form.items) >= at + 2, usage)
        bindings = form.items[at]
        if not isinstance(bindings, Form) or bindings.tail is not None:
            refuse(form, usage)
        pairs: list[tuple[Symbol, Datum]] = []
        for each in bindings.items:
            match each:
                case Form(items=(Symbol() as name, value), tail=None):
                    pairs.append((name, value))
                case _:
                    refuse(each, f"a binding is `(name e)`; {usage}")
        return pairs

    # (let ((x e) ...) body), (let name ((x e) ...) body)
    def _let(self, form: Form, scope: Scope | None) -> Core:
        if len(form.items) > 1 and isinstance(form.items[1], Symbol):
            return self._named_let(form, form.items[1], scope)
        pairs = self._bindings(form, "let")
        params = [name for name, _ in pairs]
        fun = self._lambda(params, form.items[2:], form.where, scope, None)
        values = [value for _, value in pairs]
        return App(form.where, fun, self._tuple(form.where, values, scope))

    def _named_let(self, form: Form, name: Symbol, scope: Scope | None) -> Core:
        pairs = self._bindings(form, f"let {name.name}", at=2)
        params = [each for each, _ in pairs]
        values = [value for _, value in pairs]
        loop: Definition = (name, params, form.items[3:], form.where)
        fun = self._letrec([loop], [name], form.where, scope)
        return App(form.where, fun, self._tuple(form.where, values, scope))

    # (let* ((x e) ...) body)
    def _let_star(self, form: Form, scope: Scope | None) -> Core:
        pairs = self._bindings(form, "let*")
        body = form.items[2:]
        if len(pairs) <= 1:
            return self._let(Form((form.items[0], *form.items[1:]), form.where), scope)
        (name, value), *rest = pairs
        inner = Form(
            (
                form.items[0],
                Form(tuple(Form((n, v), n.where) for n, v in rest), form.where),
                *body,
            ),
            form.where,
        )
        first = Form((Form((name, value), name.where),), form.where)
        return self._let(Form((form.items[0], first, inner), form.where), scope)

    # (if e e e)
    def _if(self, form: Form, scope: Scope | None) -> Core:
        require(form, len(form.items) == 4, "write `(if test then else)`, all three")
        test, then, other = (self.expression(e, scope) for e in form.items[1:])
        return If(form.where, test, then, other)

    # (cons e e)
    def _cons(self, form: Form, scope: Scope | None) -> Core:
        require(form, len(form.items) == 3, "`cons` takes two expressions")
        left, right = (self.expression(e, scope) for e in form.items[1:])
        return Prim(form.where, "cons", (left, right))

    # (cons* e ...)
    def _cons_star(self, form: Form, scope: Scope | None) -> Core:
        return self._tuple(form.where, form.items[1:], scope)

    # (list e ...)
    def _list(self, form: Form, scope: Scope | None) -> Core:
        parts = [self.expression(e, scope) for e in form.items[1:]]
        result: Core = Const(form.where, ())
        while parts:
            result = Prim(form.where, "cons", (parts.pop(), result))
        return result

    # (cond (e e) ... (else e))
    def _cond(self, form: Form, scope: Scope | None) -> Core:
        clauses = form.items[1:]
        usage = "write `(cond (test e) ... (else e))`"
        require(form, bool(clauses), usage)
        pairs: list[tuple[Datum, Datum, Datum]] = []
        for clause in clauses:
            match clause:
                case Form(items=(left, right), tail=None):
                    pairs.append((clause, left, right))
                case _:
                    refuse(clause, usage)
        last, head, value = pairs.pop()
        ends = isinstance(head, Symbol) and head.name == "else"
        require(last, ends, f"the last clause of `cond` begins with `else`; {usage}")
        expanded = [
            (each.where, self.expression(a, scope), self.expression(b, scope))
            for each, a, b in pairs
        ]
        result = self.expression(value, scope)
        for where, test, then in reversed(expanded):
            result = If(where, test, then, result)
        return result

    # (and e ...)
    def _and(self, form: Form, scope: Scope | None) -> Core:
        parts = [self.expression(e, scope) for e in form.items[1:]]
        if not parts:
            return Const(form.where, True)
        result = parts.pop()
        while parts:
            result = If(form.where, parts.pop(), result, Const(form.where, False))
        return result

    # (or e ...): (or a b) is (let ((t a)) (if t t b))
    def _or(self, form: Form, scope: Scope | None) -> Core:
        items = form.items[1:]
        if not items:
            return Const(form.where, False)
        if len(items) == 1:
            return self.expression(items[0], scope)
        first = self.expression(items[0], scope)
        unique = self.names.fresh("or")
        inner = Scope({"": unique}, scope, closes=True)
        rest = self._or(Form((form.items[0], *items[1:]), form.where), inner)
        variable = Var(form.where, unique)
        body = If(form.where, variable, variable, rest)
        fun = Lambda(form.where, None, PVar(unique), body, tuple(inner.free))
        return App(form.where, fun, first)

    def _misplaced(self, form: Form, scope: Scope | None) -> Core:
        del scope
        advice = {
            "define": "a definition stands at top level or at the start of a body",
            "include": "`include` stands at top level",
            "else": "`else` begins the last clause of a `cond`",
        }
        head = form.items[0]
        assert isinstance(head, Symbol)
        refuse(form, f"{advice[head.name]}; move it there")


_ONE_EXPRESSION = (
    "a body is definitions and then one expression; remove the others, or combine them "
    "with `let`"
)

_FORMS: dict[str, Callable[[Expander, Form, Scope | None], Core]] = {
    "quote": Expander._quote,
    "lambda": Expander._lambda_form,
    "letrec": Expander._letrec_form,
    "let": Expander._let,
    "let*": Expander._let_star,
    "if": Expander._if,
    "cons": Expander._cons,
    "cons*": Expander._cons_star,
    "list": Expander._list,
    "cond": Expander._cond,
    "and": Expander._and,
    "or": Expander._or,
    "else": Expander._misplaced,
    "define": Expander._misplaced,
    "include": Expander._misplaced,
}


def is_form(datum: Datum, word: str) -> bool:
    """Whether a datum is `(word ...)`."""
    if not isinstance(datum, Form) or not datum.items:
        return False
    head = datum.items[0]
    return isinstance(head, Symbol) and head.name == word


def split_definition(form: Form) -> Definition:
    """The parts of `(define (f p ...) body)`, curried or not, or with a lambda."""
    usage = "write `(define (f p ...) body)` or `(define f (lambda (p ...) body))`"
    items: list[Datum] = list(form.items)
    require(form, form.tail is None and len(items) >= 3, usage)
    target, body = items[1], tuple(items[2:])
    if isinstance(target, Symbol):
        require(form, len(body) == 1, usage)
        return function_definition(target, body[0], form)
    while isinstance(target, Form):
        require(target, bool(target.items) and target.tail is None, usage)
        head, params = target.items[0], target.items[1:]
        if isinstance(head, Symbol):
            return _defined(head), params, body, form.where
        word = Symbol("lambda", form.where)
        body = (Form((word, Form(params, target.where), *body), form.where),)
        target = head
    refuse(form, usage)


def function_definition(name: Symbol, value: Datum, whole: Datum) -> Definition:
    """A name with a `(lambda ...)`: anything else cannot be defined."""
    match value:
        case Form(items=(Symbol(name="lambda"), Form(tail=None) as params, *body)) if (
            body
        ):
            return _defined(name), params.items, tuple(body), value.where
    refuse(
        whole,
        f"`{name.name}` is defined as something that is no `(lambda ...)`; only "
        "functions can be defined, use `let` for values",
    )


def _defined(name: Symbol) -> Symbol:
    require(
        name, name.name not in RESERVED, "this word is reserved; rename the function"
    )
    return name


def constant(datum: Datum) -> Constant:
    """A quoted datum as a value, without recursion on the length of a list."""
    match datum:
        case Literal():
            return datum.value
        case Form():
            result: Constant = () if datum.tail is None else constant(datum.tail)
            for item in reversed(datum.items):
                result = (constant(item), result)
            return result
        case Symbol() | Text():
            refuse(datum, "a quoted name is no value; the language has no symbols")
