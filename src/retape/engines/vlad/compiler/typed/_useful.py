"""Analyses: which doubles an adjoint can reach, and which values come again.

A double is useful if a function's value, an element of a vector, an item of a list, or
another useful double depends on it by operators with derivatives. The adjoint of any
other one, such as a loop's counter, is zero always, and nothing is computed for it.
This is half of activity analysis (Bischof and others 1992); the other half, which
doubles vary with the input, would need to know what the caller differentiates by.

A recursion may apply a function of a real to the same number each time:

    rot(theta, x) = ... cos(theta) ... rot(theta, cdr(x)) ...

An optimizer of C moves that out of a loop, but not out of a recursion that waits on the
stack for what it calls. There the last operand is kept, and its value. In the paper's
example the sine and the cosine were half of the time.
"""

from collections.abc import Callable

from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Branch,
    Call,
    Cont,
    Jump,
    Let,
    Register,
    Return,
    Stop,
    Tick,
    terms_of,
)
from retape.engines.vlad.compiler.typed._derivatives import partials_of
from retape.engines.vlad.compiler.typed._form import TypedFunction, TypedProgram
from retape.engines.vlad.compiler.typed._row_operations import (
    CELL,
    SETS,
    gives_row,
    is_each,
)
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import MAKE_VECTOR, names_with


def useful_slots(program: TypedProgram) -> frozenset[Register]:
    """The variables that are useful."""
    found: set[Register] = set()
    edges: dict[Register, list[Register]] = {}

    def flows(source: Atom, to: Atom) -> None:
        if isinstance(source, Register) and isinstance(to, Register):
            edges.setdefault(to, []).append(source)

    params = {
        term.name: term.params
        for fun in program.functions.values()
        for term in terms_of(fun.body)
        if isinstance(term, Cont)
    }
    for fun in program.functions.values():
        for term in terms_of(fun.body):
            match term:
                case Let():
                    _operand_flows(term, found, flows)
                case Jump():
                    for source, to in zip(term.args, params[term.cont], strict=True):
                        flows(source, to)
                case Return():
                    found.update(
                        a
                        for a in term.args
                        if isinstance(a, Register) and a.kind == "d"
                    )
                case Call():
                    called = program.functions[term.function]
                    for source, to in zip(term.args, called.params, strict=True):
                        flows(source, to)
                case Branch() | Cont() | Stop() | Tick():
                    pass
    pending = list(found)
    while pending:
        for source in edges.get(pending.pop(), ()):
            if source.kind == "d" and source not in found:
                found.add(source)
                pending.append(source)
    return frozenset(found)


Flow = Callable[[Atom, Atom], None]


def _operand_flows(term: Let, found: set[Register], flows: Flow) -> None:
    if term.op in SETS:
        found |= {a for a in term.args[2:] if isinstance(a, Register)}
    elif term.op == CELL:
        found |= {a for a in term.args[:1] if isinstance(a, Register)}
    elif term.op == MAKE_VECTOR:
        found |= {a for a in term.args[1:] if isinstance(a, Register)}
    elif is_each(term.op):
        for arg in term.args:
            if gives_row(term) and isinstance(arg, Register):
                found.add(arg)
            flows(arg, term.var)
    else:
        for arg, _ in zip(term.args, partials_of(term.op), strict=False):
            flows(arg, term.var)


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
