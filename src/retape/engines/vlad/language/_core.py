"""The core language: the paper's equations (1), (4), (8) and (16) as records.

    e ::= c | x | (lambda (p) e) | (e e) | (if e e e) | (op e) | (op e e)
        | (j* e e e) | (*j e e e) | (checkpoint-*j e e e) | letrec

Every name that a lambda or a letrec binds is unique in the program (`x.7`), and every
lambda knows its free variables, so that no later pass has to think about scope.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from retape.engines.vlad.language._diagnostics import Where

Constant: TypeAlias = "float | bool | tuple[()] | tuple[Constant, Constant]"
"""A quoted value: reals are floats, `()` the empty tuple, a pair a tuple of two."""


@dataclass(frozen=True, slots=True, eq=False)
class PVar:
    """A parameter that is a variable."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class PConst:
    """A parameter that is a constant: the argument must equal it."""

    value: "float | bool | tuple[()]"


@dataclass(frozen=True, slots=True, eq=False)
class PPair:
    """A parameter `(cons p p)`: the argument is taken apart on entry."""

    car: "Pattern"
    cdr: "Pattern"


Pattern: TypeAlias = PVar | PConst | PPair


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    where: Where
    value: Constant


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A variable that a lambda or a letrec binds."""

    where: Where
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A definition at top level, or a builtin."""

    where: Where
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Lambda:
    """A function of one parameter; `name` is what a definition calls it."""

    where: Where
    name: str | None
    param: Pattern
    body: "Core" = field(repr=False)
    free: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class App:
    where: Where
    fun: "Core"
    arg: "Core"


@dataclass(frozen=True, slots=True, eq=False)
class If:
    where: Where
    test: "Core"
    then: "Core"
    other: "Core"


@dataclass(frozen=True, slots=True, eq=False)
class Letrec:
    """Functions that may call one another; `free` are the variables of all of them."""

    where: Where
    names: tuple[str, ...]
    lambdas: tuple[Lambda, ...]
    body: "Core"
    free: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Prim:
    """A builtin operator and its one, two or three operands; `cons` is one of them."""

    where: Where
    op: str
    args: "tuple[Core, ...]"


Core: TypeAlias = Const | Var | Global | Lambda | App | If | Letrec | Prim


def pattern_names(pattern: Pattern) -> list[str]:
    """The variables that a parameter binds, from left to right."""
    return [p.name for p in pattern_leaves(pattern) if isinstance(p, PVar)]


def pattern_leaves(pattern: Pattern) -> Iterator[PVar | PConst]:
    """The leaves of a parameter, from left to right."""
    stack = [pattern]
    while stack:
        top = stack.pop()
        if isinstance(top, PPair):
            stack.extend((top.cdr, top.car))
        else:
            yield top


def children(node: Core) -> tuple[Core, ...]:
    """The expressions directly inside one."""
    match node:
        case Const() | Var() | Global():
            return ()
        case Lambda():
            return (node.body,)
        case App():
            return (node.fun, node.arg)
        case If():
            return (node.test, node.then, node.other)
        case Letrec():
            return (*node.lambdas, node.body)
        case Prim():
            return node.args


def walk(node: Core) -> Iterator[Core]:
    """Every expression in one, itself first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))
