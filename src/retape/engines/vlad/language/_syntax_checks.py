"""Shapes of data: what a form must look like, or is refused with a message for."""

from collections.abc import Sequence
from typing import NoReturn

from retape.engines.vlad.language._builtins import RESERVED
from retape.engines.vlad.language._core import Constant
from retape.engines.vlad.language._diagnostics import SyntaxFault, Where
from retape.engines.vlad.language._reader import (
    Datum,
    Form,
    Literal,
    Symbol,
    Text,
    echo,
)

Definition = tuple[Symbol, "Sequence[Datum]", "tuple[Datum, ...]", Where]
"""A defined name, its parameters, its body, and where it stands."""


def require(datum: Datum, holds: bool, message: str) -> None:
    """Refuse a datum: the message begins with the datum, printed back."""
    if not holds:
        refuse(datum, message)


def refuse(datum: Datum, message: str) -> NoReturn:
    raise SyntaxFault(f"`{echo(datum)}`: {message}", datum.where)


def is_form(datum: Datum, word: str) -> bool:
    """Tell whether a datum is `(word ...)`."""
    if not isinstance(datum, Form) or not datum.items:
        return False
    head = datum.items[0]
    return isinstance(head, Symbol) and head.name == word


def bindings_of(form: Form, word: str, at: int = 1) -> list[tuple[Datum, Datum]]:
    """The `((parameter e) ...)` of a binding form whose body is not empty."""
    usage = f"write `({word} ((name e) ...) body)`"
    require(form, len(form.items) >= at + 2, usage)
    given = form.items[at]
    if not isinstance(given, Form) or given.tail is not None:
        refuse(form, usage)
    pairs: list[tuple[Datum, Datum]] = []
    for each in given.items:
        match each:
            case Form(items=(parameter, value), tail=None):
                pairs.append((parameter, value))
            case _:
                refuse(each, f"a binding is `(name e)`; {usage}")
    return pairs


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
            refuse(datum, "a quoted name is not a value; the language has no symbols")


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
        f"`{name.name}` is defined as something other than `(lambda ...)`; only "
        "functions can be defined, use `let` for values",
    )


def _defined(name: Symbol) -> Symbol:
    require(
        name, name.name not in RESERVED, "this word is reserved; rename the function"
    )
    return name
