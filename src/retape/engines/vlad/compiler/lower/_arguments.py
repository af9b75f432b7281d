"""Arguments, taken apart before there are pairs of them, or by tests at run time."""

from collections.abc import Callable

from retape.engines.vlad.compiler.ir._ir import Atom, Lit, Match, Register, Term, Uncons
from retape.engines.vlad.compiler.lower._builder import Builder
from retape.engines.vlad.compiler.lower._denoted import Denoted, Facts, Pair
from retape.engines.vlad.language._core import Pattern, PConst, PPair, PVar
from retape.engines.vlad.operators._table import CAR, CDR


class Taking:
    """Takes arguments apart; `place` is a site, and whether all of it is at fault."""

    def __init__(self, build: Builder) -> None:
        self._build = build

    def take(
        self,
        pattern: Pattern,
        d: Denoted,
        facts: Facts,
        place: tuple[int, bool],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
    ) -> Term:
        """Take an argument apart: what each variable of a parameter is bound to."""
        match pattern, d:
            case PVar(), _:
                return rest((d,), facts)
            case PPair(), Pair():
                return self._take_both(pattern, d.car, d.cdr, facts, place, rest)
            case PPair(), _:
                return self._build.atom(
                    d, lambda a: self._uncons(pattern, a, facts, place, rest)
                )
            case _:
                assert isinstance(pattern, PConst)
                constant = Lit(pattern.value)
                if isinstance(d, Lit) and same_literal(d, constant):
                    return rest((), facts)
                site, whole = place
                return self._build.atom(
                    d, lambda a: Match(a, constant, site, whole, rest((), facts))
                )

    def _uncons(
        self,
        pattern: PPair,
        a: Atom,
        facts: Facts,
        place: tuple[int, bool],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
    ) -> Term:
        if a in facts and isinstance(a, Register):
            car, cdr = facts[a]
            return self._take_both(pattern, car, cdr, facts, place, rest)
        left, right = self._build.fresh(CAR), self._build.fresh(CDR)
        known = {**facts, a: (left, right)} if isinstance(a, Register) else facts
        body = self._take_both(pattern, left, right, known, place, rest)
        return Uncons(left, right, a, *place, body)

    def _take_both(
        self,
        pattern: PPair,
        car: Denoted,
        cdr: Denoted,
        facts: Facts,
        place: tuple[int, bool],
        rest: Callable[[tuple[Denoted, ...], Facts], Term],
    ) -> Term:
        inner = (place[0], False)
        return self.take(
            pattern.car,
            car,
            facts,
            inner,
            lambda left, f: self.take(
                pattern.cdr, cdr, f, inner, lambda right, g: rest((*left, *right), g)
            ),
        )


def same_literal(a: Lit, b: Lit) -> bool:
    """Tell whether two literals are the same constant: `#t` is not `1`."""
    return type(a.value) is type(b.value) and a.value == b.value
