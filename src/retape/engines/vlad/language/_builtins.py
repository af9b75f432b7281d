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

ELEMENTARY = (
    "sqrt exp log sin cos tan asin acos sinh cosh tanh expm1 log1p log2 log10 erf abs"
).split()
"""Real to real, each with a derivative."""

UNARY_REAL = (*ELEMENTARY, "floor")
"""Real to real; `floor` has no derivative."""

NEGATE = "(-)"
"""The builtin of `(- e)`: the negative of a real, the difference of a pair's parts."""

TESTS_OF_REALS = ("zero?", "positive?", "negative?")
TESTS = ("null?", "boolean?", "real?", "pair?", "procedure?")
INPUT_OUTPUT = ("read-real", "real", "write-real")
BINARY_REAL = ("+", "-", "*", "/", "atan", "expt", "modulo", "min", "max")
COMPARISONS = ("=", "<", ">", "<=", ">=")
VECTORS = {
    "vector?": 1,
    "make-vector": 2,
    "vector-length": 1,
    "vector-ref": 2,
    "vector-set": 3,
    "vector-dot": 2,
    "matrix-product": 3,
}
"""The extension, which the paper's language does not have."""
OPERATORS = ("j*", "*j", "checkpoint-*j")

PYTHON_FAULTS = (
    "division by zero",
    "math domain or range error",
    "assertion failed",
    "the lengths of two arrays differ",
    "`range` with a step of zero",
    "index out of range",
    "the shapes of two arrays differ",
    "a negative power of an int, which is a float; write the base as a float",
)
"""Why a compiled Python function stops: operators `fault:0`, `fault:1`, and so on."""

ARITY: dict[str, int] = {
    **dict.fromkeys((*UNARY_REAL, *TESTS_OF_REALS, *TESTS, *INPUT_OUTPUT, NEGATE), 1),
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
    shown = "-" if name == NEGATE else name
    return Lambda(where, shown, param, Prim(where, name, args), ())


BUILTINS: dict[str, Lambda] = {name: _builtin(name, n) for name, n in ARITY.items()}


def is_builtin(function: Lambda) -> bool:
    """Tell whether a function is a builtin's own."""
    return function.where.source is BUILTIN_SOURCE
