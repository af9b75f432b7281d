"""The forms that bind no names, and the table of all forms."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from retape.engines.vlad.language._binding_forms import (
    lambda_form,
    let,
    let_star,
    letrec_form,
)
from retape.engines.vlad.language._core import (
    App,
    Const,
    Core,
    If,
    Lambda,
    Prim,
    PVar,
    Var,
)
from retape.engines.vlad.language._names import Scope
from retape.engines.vlad.language._reader import Datum, Form, Symbol
from retape.engines.vlad.language._syntax_checks import constant, refuse, require
from retape.engines.vlad.operators._table import CONS

if TYPE_CHECKING:
    from retape.engines.vlad.language._expander import Expander


# (quote c)
def _quote(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    del scope
    require(form, len(form.items) == 2, "`quote` takes one datum, as in `'(1 2)`")
    return Const(form.where, constant(form.items[1]))


# (if e e e)
def _if(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    require(form, len(form.items) == 4, "write `(if test then else)`, all three")
    test, then, other = (expander.expression(e, scope) for e in form.items[1:])
    return If(form.where, test, then, other)


# (cons e e)
def _cons(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    require(form, len(form.items) == 3, "`cons` takes two expressions")
    left, right = (expander.expression(e, scope) for e in form.items[1:])
    return Prim(form.where, CONS, (left, right))


# (cons* e ...)
def _cons_star(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    return expander.tuple_of(form.where, form.items[1:], scope)


# (list e ...)
def _list(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    parts = [expander.expression(e, scope) for e in form.items[1:]]
    result: Core = Const(form.where, ())
    while parts:
        result = Prim(form.where, CONS, (parts.pop(), result))
    return result


# (cond (e e) ... (else e))
def _cond(expander: "Expander", form: Form, scope: Scope | None) -> Core:
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
        (each.where, expander.expression(a, scope), expander.expression(b, scope))
        for each, a, b in pairs
    ]
    result = expander.expression(value, scope)
    for where, test, then in reversed(expanded):
        result = If(where, test, then, result)
    return result


# (and e ...)
def _and(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    parts = [expander.expression(e, scope) for e in form.items[1:]]
    if not parts:
        return Const(form.where, True)
    result = parts.pop()
    while parts:
        result = If(form.where, parts.pop(), result, Const(form.where, False))
    return result


# (or e ...): (or a b) is (let ((t a)) (if t t b))
def _or(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    items = form.items[1:]
    if not items:
        return Const(form.where, False)
    if len(items) == 1:
        return expander.expression(items[0], scope)
    first = expander.expression(items[0], scope)
    unique = expander.names.fresh("or")
    inner = Scope({"": unique}, scope, closes=True)
    rest = _or(expander, Form((form.items[0], *items[1:]), form.where), inner)
    variable = Var(form.where, unique)
    body = If(form.where, variable, variable, rest)
    fun = Lambda(form.where, None, PVar(unique), body, tuple(inner.free))
    return App(form.where, fun, first)


def _misplaced(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    del scope
    advice = {
        "define": "a definition stands at top level or at the start of a body",
        "include": "`include` stands at top level",
        "else": "`else` begins the last clause of a `cond`",
    }
    head = form.items[0]
    assert isinstance(head, Symbol)
    refuse(form, f"{advice[head.name]}; move it there")


FORMS: dict[str, Callable[["Expander", Form, Scope | None], Core]] = {
    "quote": _quote,
    "lambda": lambda_form,
    "letrec": letrec_form,
    "let": let,
    "let*": let_star,
    "if": _if,
    CONS: _cons,
    "cons*": _cons_star,
    "list": _list,
    "cond": _cond,
    "and": _and,
    "or": _or,
    "else": _misplaced,
    "define": _misplaced,
    "include": _misplaced,
}
"""What expands each form."""
