"""Analysis: what is live where a run can stop, and what a block may cost.

A frame holds what its continuation needs, a resume frame what its function needs. A
function that is only called takes its free variables in the registers where its caller
has them, so that what it needs includes what those need that it calls.

A block begins where a function is entered or a call returns, and ends in calls and
returns. Its limit check is made once, at the beginning, for the dearest way through it:
the step counting of basic blocks, factored as section 7.1 of the paper suggests.
"""

from dataclasses import dataclass

from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
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
    binds,
)
from retape.engines.vlad.language._each import each_of
from retape.engines.vlad.operators._table import OPERATORS

LiveNames = frozenset[Register]


class Liveness:
    """The variables that each function and each continuation needs from outside."""

    def __init__(self, module: Lowered) -> None:
        self.functions: dict[int, LiveNames] = {}
        self.conts: dict[str, LiveNames] = {}
        funs = list(all_functions(module))
        self.functions = {fun.index: frozenset() for fun in funs}
        changed = True
        while changed:
            changed = False
            for fun in reversed(funs):
                changed |= self._update(fun)

    def _update(self, fun: Fun) -> bool:
        live = self.of(fun.body) - set(fun.params)
        before = self.functions[fun.index]
        self.functions[fun.index] = live
        return live != before

    def of(self, term: Term) -> LiveNames:
        """The variables that a term needs."""
        used = frozenset(a for a in atoms_of(term) if isinstance(a, Register))
        match term:
            case Let() | Uncons() | Match() | Close() | Tick():
                return (self.of(term.body) - set(binds(term))) | used
            case Fix():
                for fun in term.functions:
                    self._update(fun)
                return self.of(term.body)
            case Cont():
                self.conts[term.name] = self.of(term.cont) - {*term.params}
                return self.of(term.body)
            case Branch():
                return self.of(term.then) | self.of(term.other) | used
            case Jump() | Call() | Apply() | Operate():
                called = self.functions[term.function] if isinstance(term, Call) else ()
                return used.union(called, self.conts[term.cont] if term.cont else ())
            case Return() | Stop():
                return used


_VERSION_WORDS = 3
"""What a vector takes; its array is no young object."""


def _words_of(term: Let) -> int:
    row = OPERATORS.get(term.op)
    if row is None:
        return _VERSION_WORDS if each_of(term.op) else 0
    return row.words


@dataclass(frozen=True, slots=True)
class Cost:
    """The most steps and heap words of any way through a block."""

    steps: int = 0
    words: int = 0

    def plus(self, steps: int, words: int) -> "Cost":
        return Cost(self.steps + steps, self.words + words)

    def most(self, other: "Cost") -> "Cost":
        return Cost(max(self.steps, other.steps), max(self.words, other.words))


class Costs:
    """The cost of the block that begins at a term; those of continuations are kept."""

    def __init__(self, live: Liveness) -> None:
        self.live = live
        self.conts: dict[str, Cost] = {}

    def of(self, term: Term) -> Cost:
        match term:
            case Let():
                return self.of(term.body).plus(0, _words_of(term))
            case Close():
                return self.of(term.body).plus(0, 1 + len(term.env))
            case Tick():
                return self.of(term.body).plus(term.steps, 0)
            case Uncons() | Match() | Fix():
                return self.of(term.body)
            case Cont():
                self.conts[term.name] = self.of(term.cont)
                return self.of(term.body)
            case Branch():
                return self.of(term.then).most(self.of(term.other))
            case Jump():
                return self.conts[term.cont]
            case Return() | Stop():
                return Cost()
            case Call() | Apply() | Operate():
                frame = 0 if term.cont is None else 2 + len(self.live.conts[term.cont])
                return Cost(0, frame)
