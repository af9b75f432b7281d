"""Analysis: which functions a run is not likely to need in the general form.

Where everything is typed code, the general form of a function says only what a fault
is, and what comes of states that typed code gives up. To compile it took half of the C
compiler's time. So it is compiled when a run first comes to it.
"""

from collections.abc import Iterator

from retape.engines.vlad.compiler.ir._entered import own_terms
from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Call,
    Close,
    Fun,
    FunRef,
    Lowered,
    Operate,
    all_functions,
)
from retape.engines.vlad.compiler.typed._kinds import REAL
from retape.engines.vlad.compiler.typed._typed_functions import Typable


def seldom_run(module: Lowered, typable: Typable) -> frozenset[int]:
    """The typed functions, if nothing else of a program applies or calls any of them.

    What may be applied is the program's own functions from outside, and what it takes a
    gradient of: a function that gives a real. Forward mode applies the general form.
    """
    typed = typable.functions
    others = [fun for fun in all_functions(module) if fun.index not in typed]
    applied = [each for fun in others for each in _applied(fun)]
    applied += [each for each in module.definitions.values() if each in typed]
    if all(each in typed and typable.kinds.result(each) == REAL for each in applied):
        return frozenset(typed)
    return frozenset()


_UNKNOWN = -1
"""No function's number."""


def _applied(fun: Fun) -> Iterator[int]:
    """The functions that one calls, or takes a gradient of."""
    terms = [*own_terms(fun)]
    made = {term.var: term.function for term in terms if isinstance(term, Close)}
    for term in terms:
        if isinstance(term, Apply | Call):
            yield _UNKNOWN
        if isinstance(term, Operate):
            function = term.args[0]
            if isinstance(function, FunRef):
                yield function.function if term.op != "j*" else _UNKNOWN
            else:
                is_made = isinstance(function, str) and term.op != "j*"
                yield made.get(str(function), _UNKNOWN) if is_made else _UNKNOWN
