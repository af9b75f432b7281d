"""Functions of numbers that a library has, each a row: what it takes, and its term."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from retape.engines.vlad.language._core import Const, Core, Prim
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import (
    ABS,
    ATAN,
    EQUAL,
    EXPT,
    IS_FINITE,
    IS_ZERO,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
)
from retape.engines.vlad.python.read._types import BOOL, FLOAT, INT, Type
from retape.engines.vlad.python.terms._arithmetic import Arithmetic

_Make = Callable[..., Core]
"""From the arithmetic, a place and the numbers to a term."""


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """How a function of numbers is made of the core language's terms.

    Attributes:
        make: Its term, of the arithmetic, the place and the numbers.
        gives: The type of its value; if none, an int of ints alone, and else a float.
        count: How many numbers it takes; if none, two or more.
        takes_bools: Whether a bool is the int that it is, as NumPy's functions have
            another meaning for one.
    """

    make: _Make
    gives: Type | None = FLOAT
    count: int | None = 1
    takes_bools: bool = True

    def type_of(self, types: set[Type]) -> Type:
        """The type of its value."""
        return self.gives or (INT if types == {INT} else FLOAT)


def _operator(op: str, *constants: float) -> _Make:
    """An operator, of the numbers and of constants behind them."""

    def make(arithmetic: Arithmetic, where: Where, *numbers: Core) -> Core:
        more = (Const(where, each) for each in constants)
        return Prim(where, op, (*numbers, *more))

    return make


def _extreme(op: str) -> _Make:
    """The least or the largest of some numbers."""

    def make(arithmetic: Arithmetic, where: Where, *numbers: Core) -> Core:
        return reduce(lambda a, b: Prim(where, op, (a, b)), numbers)

    return make


def _extreme_or_nan(op: str) -> _Make:
    def make(arithmetic: Arithmetic, where: Where, a: Core, b: Core) -> Core:
        return arithmetic.smaller_or_nan(where, op, a, b)

    return make


def _itself(arithmetic: Arithmetic, where: Where, x: Core) -> Core:
    return x


def _is_true(arithmetic: Arithmetic, where: Where, x: Core) -> Core:
    return arithmetic.inverse(where, Prim(where, IS_ZERO, (x,)))


def _is_nan(arithmetic: Arithmetic, where: Where, x: Core) -> Core:
    def differs(x: Core) -> Core:
        return arithmetic.inverse(where, Prim(where, EQUAL, (x, x)))

    return arithmetic.named(where, (x,), differs)


def _power(arithmetic: Arithmetic, where: Where, a: Core, b: Core) -> Core:
    return arithmetic.finite(where, EXPT, (a, b))


NUMBER_FUNCTIONS: dict[str, NumberFunction] = {
    "abs": NumberFunction(_operator(ABS), gives=None),
    "arctan": NumberFunction(_operator(ATAN, 1.0), takes_bools=False),
    "arctan2": NumberFunction(_operator(ATAN), count=2, takes_bools=False),
    "atan": NumberFunction(_operator(ATAN, 1.0)),
    "atan2": NumberFunction(_operator(ATAN), count=2),
    "bool": NumberFunction(_is_true, BOOL),
    "ceil": NumberFunction(Arithmetic.ceiling, INT),
    "degrees": NumberFunction(_operator(MULTIPLY, 57.29577951308232)),
    "float": NumberFunction(_itself),
    "floor": NumberFunction(Arithmetic.rounded_down, INT),
    "hypot": NumberFunction(Arithmetic.hypotenuse, count=2),
    "isfinite": NumberFunction(_operator(IS_FINITE), BOOL),
    "isnan": NumberFunction(_is_nan, BOOL),
    "math.pow": NumberFunction(_power, count=2),
    "max": NumberFunction(_extreme(MAXIMUM), None, None, takes_bools=False),
    "maximum": NumberFunction(_extreme_or_nan(MAXIMUM), None, 2, takes_bools=False),
    "min": NumberFunction(_extreme(MINIMUM), None, None, takes_bools=False),
    "minimum": NumberFunction(_extreme_or_nan(MINIMUM), None, 2, takes_bools=False),
    "radians": NumberFunction(_operator(MULTIPLY, 0.017453292519943295)),
}
"""By the names that `read._library.known_function` gives them."""
