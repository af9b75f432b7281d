"""Analysis: which functions a closure enters; all others are only called."""

from retape.engines.vlad.compiler.ir._ir import (
    Close,
    FunRef,
    Lowered,
    all_functions,
    atoms_of,
    terms_of,
)


def entered(module: Lowered) -> set[int]:
    """The functions of closures that the program makes, and those that the host has."""
    found = set(module.definitions.values())
    for fun in all_functions(module):
        for term in terms_of(fun.body):
            if isinstance(term, Close):
                found.add(term.function)
            found |= {a.function for a in atoms_of(term) if isinstance(a, FunRef)}
    return found
