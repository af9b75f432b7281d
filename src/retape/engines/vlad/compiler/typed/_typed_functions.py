"""Analysis: which functions can be typed code.

Those whose variables all have a kind, that apply nothing but operators of typed code,
and that call only such functions. A function without them is boxed code, and so are
those that call it.
"""

from dataclasses import dataclass
from functools import cached_property

from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    FunRef,
    Jump,
    Let,
    Lowered,
    Match,
    Operate,
    Register,
    Return,
    Stop,
    Term,
    Tick,
    Uncons,
    all_functions,
    atoms_of,
    entered,
    terms_of,
)
from retape.engines.vlad.compiler.ir._liveness import Liveness
from retape.engines.vlad.compiler.typed._kinds import (
    LIST_TESTS,
    MIXED,
    Kinds,
    signature_of,
)
from retape.engines.vlad.operators._table import CONS, READ_REAL, WRITE_REAL


@dataclass(frozen=True, eq=False)
class Typable:
    """A program, and what typed code may make of it.

    Attributes:
        module: The program.
        live: What its functions and continuations need.
    """

    module: Lowered
    live: Liveness

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of its variables."""
        return Kinds(self.module)

    @cached_property
    def functions(self) -> set[int]:
        """The functions that can be typed code."""
        return typed_functions(self.module, self.live, self.kinds)


def typed_functions(module: Lowered, live: Liveness, kinds: Kinds) -> set[int]:
    """The numbers of the functions that can be typed code."""
    funs = {fun.index: fun for fun in all_functions(module)}
    calls = {index: _callees(fun) for index, fun in funs.items()}
    good = {index for index, fun in funs.items() if _is_plain(fun, live, kinds)}
    while True:
        bad = {index for index in good if not calls[index] <= good}
        if not bad:
            return _reachable(entered(module) & good, calls)
        good -= bad


def _reachable(roots: set[int], calls: dict[int, set[int]]) -> set[int]:
    found, pending = set(roots), list(roots)
    while pending:
        for index in calls[pending.pop()] - found:
            found.add(index)
            pending.append(index)
    return found


def differentiates(module: Lowered) -> bool:
    """Whether a program takes a derivative in reverse mode itself."""
    return any(
        isinstance(term, Operate) and term.op != "j*"
        for fun in all_functions(module)
        for term in terms_of(fun.body)
    )


def seldom_boxed(typable: Typable) -> frozenset[int]:
    """The typed functions, if nothing applies their boxed form but runs begun again.

    What is not typed then calls nothing, takes gradients of typed functions, and may be
    done again. Forward mode applies the boxed form.
    """
    module, typed = typable.module, typable.functions
    taken = typed & set(module.definitions.values())
    others = [fun for fun in all_functions(module) if fun.index not in typed]
    for term in (term for fun in others for term in terms_of(fun.body)):
        if isinstance(term, Apply | Call):
            return frozenset()
        if isinstance(term, Operate) and term.op == "j*":
            return frozenset()
        if isinstance(term, Let) and term.op in (READ_REAL, WRITE_REAL):
            return frozenset()
        if isinstance(term, Close):
            taken.add(term.function)
        taken |= {a.function for a in atoms_of(term) if isinstance(a, FunRef)}
    return frozenset(typed) if taken <= typed else frozenset()


def _callees(fun: Fun) -> set[int]:
    return {term.function for term in terms_of(fun.body) if isinstance(term, Call)}


def _is_plain(fun: Fun, live: Liveness, kinds: Kinds) -> bool:
    names = {*fun.params, *live.functions[fun.index]}
    if any(kinds.of(name) == MIXED for name in names):
        return False
    return all(_is_plain_term(term, kinds) for term in terms_of(fun.body))


def _is_plain_term(term: Term, kinds: Kinds) -> bool:
    match term:
        case Apply() | Operate() | Close():
            return False
        case Let():
            is_known = term.op in (CONS, *LIST_TESTS)
            is_known |= signature_of(term.op) is not None
            if not is_known and not term.op.startswith("fault:"):
                return False
            names = [term.var]
        case Uncons():
            names = [term.car, term.cdr]
        case Cont():
            names = [*term.params]
        case Match() | Branch() | Jump() | Return() | Call() | Fix() | Tick() | Stop():
            names = []
    names += [a for a in atoms_of(term) if isinstance(a, Register)]
    return all(kinds.of(name) != MIXED for name in names) and all(
        isinstance(a, Register) or hasattr(a, "value") for a in atoms_of(term)
    )
