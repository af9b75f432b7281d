"""Denotations: what a variable stands for while it is converted."""

from collections.abc import Callable
from dataclasses import dataclass

from retape.engines.vlad.compiler.ir._ir import Atom, Term
from retape.engines.vlad.language._core import Lambda


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
