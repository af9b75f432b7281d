"""The forms that bind names: `lambda`, `letrec`, `let`, named `let`, `let*`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retape.engines.vlad.language._builtins import RESERVED
from retape.engines.vlad.language._core import App, Core, Pattern, PConst, PPair, PVar
from retape.engines.vlad.language._names import Names, Scope
from retape.engines.vlad.language._reader import Datum, Form, Literal, Symbol
from retape.engines.vlad.language._syntax_checks import (
    Definition,
    bindings_of,
    function_definition,
    refuse,
    require,
)


class Parameters:
    """The parameters of one function, or the names of one group of functions.

    Args:
        names: Where unique names come from.

    Attributes:
        bound: The unique name of each name that has been bound.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.bound: dict[str, str] = {}

    def pattern_of(self, params: Sequence[Datum]) -> Pattern:
        """Several parameters to one, which takes a tuple apart."""
        if not params:
            return PConst(())
        patterns = [self._pattern(p) for p in params]
        result = patterns.pop()
        while patterns:
            result = PPair(patterns.pop(), result)
        return result

    def _pattern(self, datum: Datum) -> Pattern:
        match datum:
            case Literal():
                return PConst(datum.value)
            case Symbol():
                return self.bind(datum)
            case Form(items=(Symbol(name="quote"), Form(items=(), tail=None))):
                return PConst(())
            case Form(items=(Symbol(name="cons"), left, right), tail=None):
                return PPair(self._pattern(left), self._pattern(right))
            case Form(items=(Symbol(name="cons*"), *rest), tail=None) if rest:
                return self.pattern_of(rest)
            case Form(items=(Symbol(name="list"), *rest), tail=None):
                parts = [self._pattern(p) for p in rest]
                result: Pattern = PConst(())
                while parts:
                    result = PPair(parts.pop(), result)
                return result
        refuse(
            datum,
            "a parameter is a variable, a constant, `(cons p p)`, `(cons* p ...)` or "
            "`(list p ...)`; write one of these",
        )

    def bind(self, datum: Symbol) -> PVar:
        """Give a name that is bound here a unique one."""
        require(
            datum,
            datum.name not in RESERVED,
            "this word is reserved; rename the variable",
        )
        require(
            datum,
            datum.name not in self.bound,
            "this name is bound twice here; rename one",
        )
        self.bound[datum.name] = self.names.fresh(datum.name)
        return PVar(self.bound[datum.name])


if TYPE_CHECKING:
    from retape.engines.vlad.language._expander import Expander


# (lambda (p ...) body)
def lambda_form(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    require(form, len(form.items) >= 3, "write `(lambda (p ...) body)`")
    params = form.items[1]
    if not isinstance(params, Form) or params.tail is not None:
        refuse(form, "the parameters of `lambda` are a list, as in `(lambda (x) x)`")
    return expander.function(params.items, form.items[2:], form.where, scope, None)


# (letrec ((f (lambda ...)) ...) body)
def letrec_form(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    bindings = bindings_of(form, "letrec")
    definitions: list[Definition] = []
    for name, value in bindings:
        if not isinstance(name, Symbol):
            refuse(name, "`letrec` binds names of functions; use `let` for values")
        definitions.append(function_definition(name, value, value))
    if not definitions:
        return expander.body(form.items[2:], form.where, scope)
    return expander.letrec(definitions, form.items[2:], form.where, scope)


# (let ((x e) ...) body), (let name ((x e) ...) body)
def let(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    if len(form.items) > 1 and isinstance(form.items[1], Symbol):
        return _named_let(expander, form, form.items[1], scope)
    pairs = bindings_of(form, "let")
    params = [name for name, _ in pairs]
    fun = expander.function(params, form.items[2:], form.where, scope, None)
    values = [value for _, value in pairs]
    return App(form.where, fun, expander.tuple_of(form.where, values, scope))


def _named_let(
    expander: "Expander", form: Form, name: Symbol, scope: Scope | None
) -> Core:
    pairs = bindings_of(form, f"let {name.name}", at=2)
    params = [each for each, _ in pairs]
    values = [value for _, value in pairs]
    loop: Definition = (name, params, form.items[3:], form.where)
    fun = expander.letrec([loop], [name], form.where, scope)
    return App(form.where, fun, expander.tuple_of(form.where, values, scope))


# (let* ((x e) ...) body)
def let_star(expander: "Expander", form: Form, scope: Scope | None) -> Core:
    pairs = bindings_of(form, "let*")
    body = form.items[2:]
    if len(pairs) <= 1:
        return let(expander, Form((form.items[0], *form.items[1:]), form.where), scope)
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
    return let(expander, Form((form.items[0], first, inner), form.where), scope)
