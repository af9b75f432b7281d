"""Analysis: functions of a real that a recursion applies to the same number each time.

    rot(theta, x) = ... cos(theta) ... rot(theta, cdr(x)) ...

An optimizer of C moves them out of a loop, but not out of a recursion that waits on the
stack for what it calls. There the last operand is kept, and its value. In the paper's
example the sine and the cosine were half of the time.
"""

from retape.engines.vlad.compiler.ir._ir import Call, Let, Register, terms_of
from retape.engines.vlad.compiler.typed._form import TypedFunction, TypedProgram
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import names_with

_COSTLY = names_with(Trait.COSTLY)


def applied_again(program: TypedProgram) -> frozenset[Register]:
    """The variables that are such a function of a number that does not change."""
    return frozenset(
        var
        for function in program.functions.values()
        for var in _applied_again(function)
    )


def _applied_again(function: TypedFunction) -> list[Register]:
    terms = list(terms_of(function.body))
    calls = [
        term
        for term in terms
        if isinstance(term, Call) and term.function == function.index
    ]
    if all(call.cont is None for call in calls):
        return []
    same = {
        param
        for i, param in enumerate(function.params)
        if all(call.args[i] == param for call in calls)
    }
    same.update(function.live)
    return [
        term.var
        for term in terms
        if isinstance(term, Let) and term.op in _COSTLY and term.args[0] in same
    ]
