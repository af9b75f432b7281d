"""Parameters: how a function takes its one argument apart."""

from collections.abc import Sequence

from retape.engines.vlad.language._builtins import RESERVED
from retape.engines.vlad.language._core import Pattern, PConst, PPair, PVar
from retape.engines.vlad.language._names import Names
from retape.engines.vlad.language._reader import Datum, Form, Literal, Symbol
from retape.engines.vlad.language._syntax_checks import refuse, require


class Parameters:
    """The parameters of one function, or the names of one group of functions.

    Args:
        names: Where unique names come from.

    Attributes:
        bound: The unique name of each name that has been bound.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.bound: dict[str, str] = {}

    def pattern_of(self, params: Sequence[Datum]) -> Pattern:
        """Several parameters to one, which takes a tuple apart."""
        if not params:
            return PConst(())
        patterns = [self._pattern(p) for p in params]
        result = patterns.pop()
        while patterns:
            result = PPair(patterns.pop(), result)
        return result

    def _pattern(self, datum: Datum) -> Pattern:
        match datum:
            case Literal():
                return PConst(datum.value)
            case Symbol():
                return self.bind(datum)
            case Form(items=(Symbol(name="quote"), Form(items=(), tail=None))):
                return PConst(())
            case Form(items=(Symbol(name="cons"), left, right), tail=None):
                return PPair(self._pattern(left), self._pattern(right))
            case Form(items=(Symbol(name="cons*"), *rest), tail=None) if rest:
                return self.pattern_of(rest)
            case Form(items=(Symbol(name="list"), *rest), tail=None):
                parts = [self._pattern(p) for p in rest]
                result: Pattern = PConst(())
                while parts:
                    result = PPair(parts.pop(), result)
                return result
        refuse(
            datum,
            "a parameter is a variable, a constant, `(cons p p)`, `(cons* p ...)` or "
            "`(list p ...)`; write one of these",
        )

    def bind(self, datum: Symbol) -> PVar:
        """Give a name that is bound here a unique one."""
        require(
            datum,
            datum.name not in RESERVED,
            "this word is reserved; rename the variable",
        )
        require(
            datum,
            datum.name not in self.bound,
            "this name is bound twice here; rename one",
        )
        self.bound[datum.name] = self.names.fresh(datum.name)
        return PVar(self.bound[datum.name])
