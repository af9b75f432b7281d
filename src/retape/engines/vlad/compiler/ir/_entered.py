"""Analysis: which functions a closure enters; all others are only called."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.ir._ir import (
    Close,
    Fun,
    FunRef,
    Lowered,
    Term,
    all_functions,
    atoms_of,
    subterms,
)


def entered(module: Lowered) -> set[int]:
    """The functions of closures that the program makes, and those that the host has."""
    found = set(module.definitions.values())
    for fun in all_functions(module):
        for term in own_terms(fun):
            if isinstance(term, Close):
                found.add(term.function)
            found |= {a.function for a in atoms_of(term) if isinstance(a, FunRef)}
    return found


def own_terms(fun: Fun) -> Iterator[Term]:
    """The terms of a function, those of the functions in it apart."""
    stack = [fun.body]
    while stack:
        term = stack.pop()
        yield term
        stack.extend(subterms(term))
