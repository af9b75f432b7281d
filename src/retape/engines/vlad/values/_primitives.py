"""The table of operators, for the interpreter and the hybrid.

Operators of one and two operands are Python functions. Reading and printing belong to a
`World`, the three derivatives to `evaluators/_derivatives`; both are added to the table
there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from retape.engines.vlad.language._builtins import PYTHON_FAULTS
from retape.engines.vlad.operators._row import Operator, Trait
from retape.engines.vlad.operators._table import (
    CHECK_INTEGER,
    CHECK_REAL,
    CONS,
    IS_BOOLEAN,
    IS_NULL,
    IS_PAIR,
    IS_PROCEDURE,
    IS_REAL,
    LARGEST_INTEGER,
    NEGATE,
    OPERATORS,
    READ_REAL,
    WRITE_REAL,
)
from retape.engines.vlad.values import _dual_and_taped as numbers
from retape.engines.vlad.values._products import PRODUCT_BUILTINS
from retape.engines.vlad.values._values import Closure, Mismatch, Value, show_atom
from retape.engines.vlad.values._vectors import TABLE as VECTORS

Table = dict[str, Callable[..., Value]]


def _through_derivatives(row: Operator) -> Callable[..., Value]:
    """An operator of reals that has no rule: it sees through derivatives."""
    name, python = row.shown, row.python
    assert python is not None, "floats have every operator of reals"
    if row.traits & Trait.CHOICE:
        first_is = python

        def choice(a: Value, b: Value) -> Value:
            """One of the operands, with its derivatives."""
            x, y = numbers.strip(name, a), numbers.strip(name, b)
            return a if first_is(x, y) is x else b

        return choice
    if row.arity == 1:
        return lambda a: python(numbers.strip(name, a))

    def operator(a: Value, b: Value) -> float | bool:
        if type(a) is float and type(b) is float:
            return python(a, b)
        return python(numbers.strip(name, a), numbers.strip(name, b))

    return operator


def _negate(value: Any) -> Value:
    """`(- e)`: the negative of a real, or the difference of the parts of a pair."""
    if type(value) is tuple and value:
        return numbers.sub(*value)
    return numbers.LIFTED[NEGATE](value)


def _real(a: Value) -> Value:
    if not numbers.is_real(a):
        raise Mismatch(f"`real` takes reals, not `{show_atom(a)}`")
    return a


def too_large(value: float) -> str:
    """The message for an int that a double may not hold."""
    return (
        f"the int {value:.17g} is not below 2**53 and may be rounded; compute with "
        "floats"
    )


def _check_integer(value: Any) -> Value:
    """An int of Python, which a double holds exactly below 2**53."""
    primal = numbers.strip("int", value)
    if not abs(primal) < LARGEST_INTEGER:
        raise Mismatch(too_large(primal))
    return value


def _stop(why: str) -> Value:
    raise Mismatch(why)


PURE: Table = {
    **numbers.LIFTED,
    NEGATE: _negate,
    **{
        name: _through_derivatives(row)
        for name, row in OPERATORS.items()
        if row.is_of_reals and row.python and not row.is_lifted
    },
    IS_NULL: lambda a: type(a) is tuple and not a,
    IS_BOOLEAN: lambda a: type(a) is bool,
    IS_REAL: numbers.is_real,
    IS_PAIR: lambda a: type(a) is tuple and bool(a),
    IS_PROCEDURE: lambda a: type(a) is Closure,
    CHECK_REAL: _real,
    CHECK_INTEGER: _check_integer,
    CONS: lambda a, b: (a, b),
    **VECTORS,
    **PRODUCT_BUILTINS,
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
        write: Takes a real that is printed.
        inputs: The reals read so far.
        position: How many of them the run under way has read.
        printed: How many reals have been printed.
        writes: How many of them the run under way has.
    """

    read: Callable[[], float | None]
    write: Callable[[float], None]
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
        primal = numbers.strip(WRITE_REAL, value)
        if self.writes == self.printed:
            self.write(primal)
            self.printed += 1
        self.writes += 1
        return value

    def table(self) -> Table:
        return {READ_REAL: self.read_real, WRITE_REAL: self.write_real}
