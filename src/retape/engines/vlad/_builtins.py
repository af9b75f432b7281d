"""The table of builtin functions: what each is called and how many reals it takes.

A builtin is an ordinary function whose body applies one operator to its parameters.
`(+ a b)` therefore takes eight steps: the application, the variable `+`, the pair of
arguments, the two arguments, and inside, the operator with its two operands.
"""

from retape.engines.vlad._fault import Source, Where
from retape.engines.vlad._syntax import (
    Core,
    Lambda,
    Pattern,
    PConst,
    PPair,
    Prim,
    PVar,
    Var,
)

UNARY_REAL = ("sqrt", "exp", "log", "sin", "cos", "floor")
"""Real to real; `floor` has no derivative."""

TESTS_OF_REALS = ("zero?", "positive?", "negative?")
TESTS = ("null?", "boolean?", "real?", "pair?", "procedure?")
INPUT_OUTPUT = ("read-real", "real", "write-real")
BINARY_REAL = ("+", "-", "*", "/", "atan", "expt", "modulo")
COMPARISONS = ("=", "<", ">", "<=", ">=")
VECTORS = {
    "vector?": 1,
    "make-vector": 2,
    "vector-length": 1,
    "vector-ref": 2,
    "vector-set": 3,
}
"""The extension, which the paper's language does not have."""
OPERATORS = ("j*", "*j", "checkpoint-*j")

ARITY: dict[str, int] = {
    **dict.fromkeys((*UNARY_REAL, *TESTS_OF_REALS, *TESTS, *INPUT_OUTPUT), 1),
    **dict.fromkeys((*BINARY_REAL, *COMPARISONS), 2),
    **dict.fromkeys(OPERATORS, 3),
    **VECTORS,
}
"""Every builtin with the number of its parameters; `read-real` takes none, as `()`."""

RESERVED = frozenset(
    "quote lambda letrec let let* if cons cons* list cond and or else define "
    "include".split()
)

BUILTIN_SOURCE = Source("builtin", "")


def _builtin(name: str, arity: int) -> Lambda:
    where = Where(BUILTIN_SOURCE, 0)
    names = [f"{letter}.{name}" for letter in "abc"[:arity]]
    param: Pattern = PVar(names[-1])
    for left in reversed(names[:-1]):
        param = PPair(PVar(left), param)
    args: tuple[Core, ...] = tuple(Var(where, each) for each in names)
    if name == "read-real":
        param, args = PConst(()), ()
    return Lambda(where, name, param, Prim(where, name, args), ())


BUILTINS: dict[str, Lambda] = {name: _builtin(name, n) for name, n in ARITY.items()}


def is_builtin(function: Lambda) -> bool:
    """Whether a function is a builtin's own."""
    return function.where.source is BUILTIN_SOURCE
