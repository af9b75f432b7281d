"""The table of builtin functions: what each is called and how many reals it takes.

A builtin is an ordinary function whose body applies one operator to its parameters.
`(+ a b)` therefore takes eight steps: the application, the variable `+`, the pair of
arguments, the two arguments, and inside, the operator with its two operands.
"""

from retape.engines.vlad.language._core import (
    Core,
    Lambda,
    Pattern,
    PConst,
    PPair,
    Prim,
    PVar,
    Var,
)
from retape.engines.vlad.language._diagnostics import Source, Where
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import OPERATORS, READ_REAL

DERIVATIVES = ("j*", "*j", "checkpoint-*j")

PYTHON_FAULTS = (
    "division by zero",
    "math domain or range error",
    "assertion failed",
    "the lengths of two arrays differ",
    "`range` with a step of zero",
    "index out of range",
    "the shapes of two arrays differ",
    "an array without items has no mean, no largest item",
    "a matrix is singular",
    "a negative power of an int, which is a float; write the base as a float",
    "the arrays of a list differ in length",
    "an empty list makes no array of two dimensions",
    "a negative length of an array",
    "an exception",
)
"""Why a compiled Python function stops: operators `fault:0`, `fault:1`, and so on."""

ARITY: dict[str, int] = {
    **{
        name: row.arity
        for name, row in OPERATORS.items()
        if not row.traits & (Trait.HIDDEN | Trait.ITEM)
    },
    **dict.fromkeys(DERIVATIVES, 3),
}
"""Every builtin with the number of its parameters; `read-real` takes none, as `()`."""

RESERVED = frozenset(
    "quote lambda letrec let let* if cons cons* list cond and or else define "
    "include".split()
)

BUILTIN_SOURCE = Source("builtin", "")


def _builtin(name: str, arity: int) -> Lambda:
    where = NOWHERE
    names = [f"{letter}.{name}" for letter in "abc"[:arity]]
    param: Pattern = PVar(names[-1])
    for left in reversed(names[:-1]):
        param = PPair(PVar(left), param)
    args: tuple[Core, ...] = tuple(Var(where, each) for each in names)
    if name == READ_REAL:
        param, args = PConst(()), ()
    shown = OPERATORS[name].shown if name in OPERATORS else name
    return Lambda(where, shown, param, Prim(where, name, args), ())


NOWHERE = Where(BUILTIN_SOURCE, 0)
"""The place of what stands in no text."""

BUILTINS: dict[str, Lambda] = {name: _builtin(name, n) for name, n in ARITY.items()}


def is_builtin(function: Lambda) -> bool:
    """Tell whether a function is a builtin's own."""
    return function.where.source is BUILTIN_SOURCE
