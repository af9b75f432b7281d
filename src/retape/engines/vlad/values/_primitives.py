"""The table of operators, for the interpreter and the hybrid.

Operators of one and two operands are Python functions. Reading and printing belong to a
`World`, the three derivatives to `evaluators/_derivatives`; both are added to the table
there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import eq, ge, gt, le, lt
from typing import Any

from retape.engines.vlad.language._builtins import PYTHON_FAULTS
from retape.engines.vlad.language._reader import show_constant
from retape.engines.vlad.values import _dual_and_taped as numbers
from retape.engines.vlad.values import _float_functions as floats
from retape.engines.vlad.values import _operators as operators
from retape.engines.vlad.values import _python_integers as integers
from retape.engines.vlad.values._products import PRODUCT_BUILTINS
from retape.engines.vlad.values._values import Closure, Mismatch, Value, show_atom
from retape.engines.vlad.values._vectors import TABLE as VECTORS

Table = dict[str, Callable[..., Value]]


def _compare(name: str, test: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    """A comparison, which sees through derivatives."""

    def operator(a: Value, b: Value) -> bool:
        if type(a) is float and type(b) is float:
            return test(a, b)
        return test(numbers.strip(name, a), numbers.strip(name, b))

    return operator


def _sign(name: str, test: Callable[[float], bool]) -> Callable[[Value], bool]:
    return lambda a: test(numbers.strip(name, a))


def _on_primal(name: str, function: Callable[..., float]) -> Callable[..., float]:
    """An operator without a derivative."""
    return lambda *args: function(*(numbers.strip(name, a) for a in args))


def _real(a: Value) -> Value:
    if not numbers.is_real(a):
        raise Mismatch(f"`real` takes reals, not `{show_atom(a)}`")
    return a


def _stop(why: str) -> Value:
    raise Mismatch(why)


PURE: Table = {
    "+": numbers.add,
    "-": numbers.sub,
    "*": numbers.mul,
    "/": operators.div,
    "atan": operators.atan,
    "sqrt": operators.sqrt,
    "exp": operators.exp,
    "log": operators.log,
    "sin": operators.sin,
    "cos": operators.cos,
    "tan": operators.tan,
    "asin": operators.asin,
    "acos": operators.acos,
    "sinh": operators.sinh,
    "cosh": operators.cosh,
    "tanh": operators.tanh,
    "expm1": operators.expm1,
    "log1p": operators.log1p,
    "log2": operators.log2,
    "log10": operators.log10,
    "erf": operators.erf,
    "abs": operators.absolute,
    "expt": operators.expt,
    "min": operators.least,
    "max": operators.greatest,
    "(-)": operators.negate,
    "=": _compare("=", eq),
    "<": _compare("<", lt),
    ">": _compare(">", gt),
    "<=": _compare("<=", le),
    ">=": _compare(">=", ge),
    "zero?": _sign("zero?", lambda a: a == 0.0),
    "positive?": _sign("positive?", lambda a: a > 0.0),
    "negative?": _sign("negative?", lambda a: a < 0.0),
    "modulo": _on_primal("modulo", floats.modulo),
    "floor": _on_primal("floor", floats.floor),
    "null?": lambda a: type(a) is tuple and not a,
    "boolean?": lambda a: type(a) is bool,
    "real?": numbers.is_real,
    "pair?": lambda a: type(a) is tuple and bool(a),
    "procedure?": lambda a: type(a) is Closure,
    "real": _real,
    "cons": lambda a, b: (a, b),
    **VECTORS,
    **PRODUCT_BUILTINS,
    "finite?": lambda a: math.isfinite(numbers.strip("float", a)),
    "check-integer": integers.check_integer,
    "remainder": integers.remainder,
    "floor-divide": integers.floor_divide,
    **{f"fault:{i}": partial(_stop, why) for i, why in enumerate(PYTHON_FAULTS)},
}


@dataclass(slots=True)
class World:
    """Input and output of a program, each once however often a part is re-run.

    A capsule remembers how far the program had read and printed. When it is resumed,
    what was read before is read again from `inputs`, and what was printed before is
    not printed again.

    Attributes:
        read: Gives the next real of the input, or `None` at its end.
        write: Takes a line of output.
        inputs: The reals read so far.
        position: How many of them the run under way has read.
        printed: How many reals have been printed.
        writes: How many of them the run under way has.
    """

    read: Callable[[], float | None]
    write: Callable[[str], None]
    inputs: list[float] = field(default_factory=list)
    position: int = 0
    printed: int = 0
    writes: int = 0

    @property
    def mark(self) -> tuple[int, int]:
        return self.position, self.writes

    def rewind(self, mark: tuple[int, int]) -> None:
        self.position, self.writes = mark

    def read_real(self) -> float:
        if self.position == len(self.inputs):
            value = self.read()
            if value is None:
                raise Mismatch(
                    "`read-real` is at the end of the input; give more reals"
                )
            self.inputs.append(value)
        self.position += 1
        return self.inputs[self.position - 1]

    def write_real(self, value: Value) -> Value:
        primal = numbers.strip("write-real", value)
        if self.writes == self.printed:
            self.write(show_constant(primal))
            self.printed += 1
        self.writes += 1
        return value

    def table(self) -> Table:
        return {"read-real": self.read_real, "write-real": self.write_real}
