"""Pass: remove what cannot fail and is not used.

    let p = cons a b in f(a b)   ->   f(a b)

This is where the argument tuples and the pairs that a callee has taken apart go.
"""

from dataclasses import replace

from retape.engines.vlad.compiler.ir._ir import (
    Branch,
    Close,
    Cont,
    Fix,
    Fun,
    Let,
    Lowered,
    Match,
    Register,
    Term,
    Tick,
    Uncons,
    atoms_of,
)
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import names_with

TOTAL = names_with(Trait.TOTAL)
"""Operators that neither fail nor do anything but give a value."""


class Pruning:
    """One module's pruning: uses are counted from the ends of terms to their starts."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def function(self, fun: Fun) -> Fun:
        return replace(fun, body=self.term(fun.body))

    def term(self, term: Term) -> Term:
        """The term without its unused parts; notes what the rest uses."""
        result = self._term(term)
        self.used.update(a for a in atoms_of(result) if isinstance(a, Register))
        return result

    def _term(self, term: Term) -> Term:
        match term:
            case Let() | Close():
                body = self.term(term.body)
                total = isinstance(term, Close) or term.op in TOTAL
                if total and term.var not in self.used:
                    return body
                return replace(term, body=body)
            case Uncons() | Match() | Tick():
                return replace(term, body=self.term(term.body))
            case Fix():
                body = self.term(term.body)
                funs = tuple(self.function(fun) for fun in term.functions)
                return Fix(funs, body)
            case Cont():
                body, cont = self.term(term.body), self.term(term.cont)
                return replace(term, cont=cont, body=body)
            case Branch():
                return Branch(term.test, self.term(term.then), self.term(term.other))
            case _:
                return term


def prune(module: Lowered) -> Lowered:
    """Prune every function."""
    pruning = Pruning()
    functions = {i: pruning.function(fun) for i, fun in module.functions.items()}
    return replace(module, functions=functions)
