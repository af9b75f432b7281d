"""The table of operators: all that there is to know of each, in one row.

The interpreters, the C of the runtime, the compiler's passes, typed code and its
adjoints are made of these rows. A new function of reals is a new row here, and nothing
else: the page "Architecture" shows one.

An operator of `OPERATORS` is found by its name. The constants are for modules in which
one operator is itself the idea, such as pairs.
"""

import math
import operator

from retape.engines.vlad.operators._float_functions import (
    divide,
    floor,
    floor_divide,
    hyperbolic_sine,
    logarithm,
    modulo,
    power,
    remainder,
    total,
)
from retape.engines.vlad.operators._row import (
    ANY,
    REAL,
    ROW,
    TRUTH,
    Fault,
    Operator,
    Trait,
    table,
)

_ = Operator
_ONE, _TWO = (REAL,), (REAL, REAL)
_LIGHT_SUM = Trait.AGAIN | Trait.LIGHT | Trait.INTEGRAL
_SLOW = Trait.COSTLY
_ROOT, _POLE = Trait.ENDLESS, Trait.COSTLY | Trait.ENDLESS
_TURN = Trait.COSTLY | Trait.OF_FINITE
_CHOICE = Trait.CHOICE | Trait.INTEGRAL
_CHECK = Trait.CHECK | Trait.AGAIN

NEGATE = "(-)"
"""The operator of `(- e)`: the negative of a real, the difference of a pair's parts."""

ADD = "+"
ATAN = "atan"
AT_LEAST = ">="
AT_MOST = "<="
CHECK_REAL = "real"
DIVIDE = "/"
EQUAL = "="
GREATER = ">"
IS_BOOLEAN = "boolean?"
IS_PROCEDURE = "procedure?"
IS_REAL = "real?"
IS_VECTOR = "vector?"
LESS = "<"
MAXIMUM = "max"
MINIMUM = "min"
MULTIPLY = "*"
SUBTRACT = "-"
CAR = "car"
CDR = "cdr"
CHECKED_DIV = "/!"
CHECKED_EXPT = "expt!"
CHECK_INTEGER = "check-integer"
CONS = "cons"
EXPT = "expt"
FLOOR = "floor"
FLOOR_DIVIDE = "floor-divide"
IS_FINITE = "finite?"
IS_NEGATIVE = "negative?"
IS_NULL = "null?"
IS_PAIR = "pair?"
IS_POSITIVE = "positive?"
IS_ZERO = "zero?"
MAKE_VECTOR = "make-vector"
MATRIX_PRODUCT = "matrix-product"
OWN_SET = "own-set"
READ_REAL = "read-real"
REMAINDER = "remainder"
SQUARE = "square"
VECTOR_DOT = "vector-dot"
VECTOR_LENGTH = "vector-length"
VECTOR_REF = "vector-ref"
VECTOR_SET = "vector-set"
WRITE_REAL = "write-real"

_ARITHMETIC = (
    _("+", _TWO, REAL, "a + b", operator.add, ("1.0", "1.0"), _LIGHT_SUM, "add"),
    _("-", _TWO, REAL, "a - b", operator.sub, ("1.0", "-1.0"), _LIGHT_SUM, "sub"),
    _("*", _TWO, REAL, "a * b", operator.mul, ("b", "a"), _LIGHT_SUM, "mul"),
    _("/", _TWO, REAL, "a / b", divide, ("1.0 / b", "(0.0 - y) / b"),
      Trait.LIGHT, "div"),
    _(NEGATE, _ONE, REAL, "-a", lambda a: -a, ("-1.0",), _LIGHT_SUM, "negative", "-",
      boxed="NEGATE({to}, {0}, {site})"),
)  # fmt: skip

_OF_REALS = (
    _("sqrt", _ONE, REAL, "sqrt(a)", total(math.sqrt, math.inf), ("0.5 / y",), _ROOT),
    _("exp", _ONE, REAL, "exp(a)", total(math.exp, math.inf), ("y",), _SLOW),
    _("log", _ONE, REAL, "log(a)", logarithm(math.log), ("1.0 / a",), _POLE),
    _("sin", _ONE, REAL, "sin(a)", total(math.sin, math.nan), ("cos(a)",), _TURN),
    _("cos", _ONE, REAL, "cos(a)", total(math.cos, math.nan), ("0.0 - sin(a)",), _TURN),
    _("tan", _ONE, REAL, "tan(a)", total(math.tan, math.nan), ("1.0 + y * y",), _TURN),
    _("asin", _ONE, REAL, "asin(a)", total(math.asin, math.nan),
      ("1.0 / sqrt(1.0 - a * a)",), _TURN),
    _("acos", _ONE, REAL, "acos(a)", total(math.acos, math.nan),
      ("-1.0 / sqrt(1.0 - a * a)",), _TURN),
    _("sinh", _ONE, REAL, "sinh(a)", hyperbolic_sine, ("cosh(a)",), _SLOW),
    _("cosh", _ONE, REAL, "cosh(a)", total(math.cosh, math.inf), ("sinh(a)",), _SLOW),
    _("tanh", _ONE, REAL, "tanh(a)", math.tanh, ("1.0 - y * y",), _SLOW),
    _("expm1", _ONE, REAL, "expm1(a)", total(math.expm1, math.inf),
      ("y + 1.0",), _SLOW),
    _("log1p", _ONE, REAL, "log1p(a)", logarithm(math.log1p, -1.0),
      ("1.0 / (1.0 + a)",), _POLE),
    _("log2", _ONE, REAL, "log2(a)", logarithm(math.log2),
      ("1.4426950408889634 / a",), _POLE),  # 1 / log 2
    _("log10", _ONE, REAL, "log10(a)", logarithm(math.log10),
      ("0.4342944819032518 / a",), _POLE),  # 1 / log 10
    _("erf", _ONE, REAL, "erf(a)", math.erf,
      ("1.1283791670955126 * exp(0.0 - a * a)",), _SLOW),  # 2 / sqrt(pi)
    # at zero, where there is none, the middle slope
    _("abs", _ONE, REAL, "fabs(a)", math.fabs,
      ("1.0 if a > 0.0 else -1.0 if a < 0.0 else 0.0",),
      Trait.LIGHT | Trait.INTEGRAL),
    _("atan", _TWO, REAL, "atan2(a, b)", math.atan2,
      ("b / (a * a + b * b)", "(0.0 - a) / (a * a + b * b)")),
    # zero for the constant a^0, also where a is zero; by the exponent zero where a is,
    # as the limit from above is for b > 0
    _(EXPT, _TWO, REAL, "pow(a, b)", power,
      ("0.0 if b == 0.0 else b * expt(a, b - 1.0)",
       "0.0 if a == 0.0 else y * log(a)")),
    # less the whole number of times that b goes into a
    _(REMAINDER, _TWO, REAL, "python_remainder(a, b)", remainder,
      ("1.0", "0.0 - rint((a - y) / b)"), Trait.HIDDEN | Trait.INTEGRAL, shown="%"),
)  # fmt: skip

_CHOICES = (  # the first operand if both are equal
    _("min", _TWO, REAL, "b < a ? b : a", lambda a, b: b if b < a else a,
      ("0.0 if b < a else 1.0", "1.0 if b < a else 0.0"), _CHOICE),
    _("max", _TWO, REAL, "b > a ? b : a", lambda a, b: b if b > a else a,
      ("0.0 if b > a else 1.0", "1.0 if b > a else 0.0"), _CHOICE),
)  # fmt: skip

_CONSTANTS = (  # to derivatives
    _(FLOOR, _ONE, REAL, "floor(a)", floor, traits=Trait.FLOOR),
    _("modulo", _TWO, REAL, "vlad_modulo(a, b)", modulo, traits=Trait.INTEGRAL),
    _(FLOOR_DIVIDE, _TWO, REAL, "python_floor_divide(a, b)", floor_divide,
      traits=Trait.HIDDEN | Trait.FLOOR, shown="//"),
)  # fmt: skip

_TESTS_OF_REALS = (
    _("=", _TWO, TRUTH, "a == b", operator.eq, called="equal"),
    _("<", _TWO, TRUTH, "a < b", operator.lt, called="less"),
    _(">", _TWO, TRUTH, "a > b", operator.gt, called="greater"),
    _("<=", _TWO, TRUTH, "a <= b", operator.le, called="less_or_equal"),
    _(">=", _TWO, TRUTH, "a >= b", operator.ge, called="greater_or_equal"),
    _(IS_ZERO, _ONE, TRUTH, "a == 0.0", lambda a: a == 0.0),
    _(IS_POSITIVE, _ONE, TRUTH, "a > 0.0", lambda a: a > 0.0),
    _(IS_NEGATIVE, _ONE, TRUTH, "a < 0.0", lambda a: a < 0.0),
    _(IS_FINITE, _ONE, TRUTH, "isfinite(a) != 0", math.isfinite,
      traits=Trait.HIDDEN, shown="float"),
)  # fmt: skip

LARGEST_INTEGER = 2.0**53
"""An int of Python's below it is a double; 2**53 + 1, when it is rounded, is this."""

_CHECKS = (
    _("real", _ONE, REAL, "a", by=("1.0",), traits=_CHECK, boxed=(
      "if (UNLIKELY(!is_real({0}))) "
      '{{ G.k = k; fail(NOT_REAL, "real", {site}, {0}, NOTHING); }} {to} = {0};')),
    _(CHECK_INTEGER, _ONE, REAL, "a", by=("1.0",),
      traits=_CHECK | Trait.HIDDEN, shown="int", boxed=(
      'if (UNLIKELY(!(fabs(PRIMAL({0}, "int", {site})) < 9007199254740992.0))) '
      '{{ G.k = k; fail(TOO_LARGE, "", {site}, {0}, NOTHING); }} {to} = {0};')),
)  # fmt: skip

_TESTS = (
    _(IS_NULL, (ANY,), TRUTH, traits=Trait.TOTAL,
      boxed="{to} = boolean({0} == EMPTY);"),
    _("boolean?", (ANY,), TRUTH, traits=Trait.TOTAL,
      boxed="{to} = boolean({0} == TRUE || {0} == FALSE);"),
    _("real?", (ANY,), TRUTH, traits=Trait.TOTAL,
      boxed="{to} = boolean(is_real({0}));"),
    _(IS_PAIR, (ANY,), TRUTH, traits=Trait.TOTAL,
      boxed="{to} = boolean(tag_of({0}) == TAG_PAIR);"),
    _("vector?", (ANY,), TRUTH, traits=Trait.TOTAL,
      boxed="{to} = boolean(tag_of({0}) == TAG_VECTOR);"),
    _("procedure?", (ANY,), TRUTH, traits=Trait.TOTAL,
      boxed="{to} = boolean(tag_of({0}) == TAG_CLOSURE);"),
)  # fmt: skip

_WORLD = (
    _(READ_REAL, (ANY,), REAL, boxed="G.k = k; {to} = read_real({site});"),
    _(WRITE_REAL, (ANY,), REAL, boxed="G.k = k; {to} = write_real({0}, {site});"),
)

_VECTORS = (  # the extension, which the paper's language does not have
    _(MAKE_VECTOR, (REAL, REAL), ROW, words=3, place=0,
      boxed="RUNTIME({to}, make_vector({0}, {1}, {site})) WORKED"),
    _(VECTOR_LENGTH, (ROW,), REAL,
      boxed="RUNTIME({to}, vector_length({0}, {site}))"),
    _(VECTOR_REF, (ROW, REAL), REAL, place=1,
      boxed="VECTOR_REF({to}, {0}, {1}, {site})"),
    _(VECTOR_SET, (ROW, REAL, REAL), ROW, words=3, place=1,
      boxed="RUNTIME({to}, vector_set({0}, {1}, {2}, {site}))"),
    _(VECTOR_DOT, (ROW, ROW), REAL,
      boxed="RUNTIME({to}, vector_dot({0}, {1}, {site})) WORKED"),
    _(MATRIX_PRODUCT, ((REAL, REAL), ROW, ROW), ROW, words=3,
      boxed="RUNTIME({to}, matrix_product({0}, {1}, {2}, {site})) WORKED"),
)  # fmt: skip

_PAIRS = (
    _(CONS, (ANY, ANY), ANY, traits=Trait.TOTAL | Trait.HIDDEN, words=3),
    # of typed code's lists
    _(CAR, (ANY,), ANY, "a->value", traits=Trait.AGAIN | Trait.HIDDEN),
    _(CDR, (ANY,), ANY, "a->next", traits=Trait.AGAIN | Trait.HIDDEN),
    _(OWN_SET, (ROW, REAL, REAL), ROW, place=1, traits=Trait.HIDDEN),
)

_ITEMS = (  # of whole vectors; the last of what is done with an item may be a fault
    _(SQUARE, _ONE, REAL, "a * a", by=("a", "a"), traits=Trait.ITEM | Trait.LIGHT),
    _(CHECKED_DIV, _TWO, REAL, traits=Trait.ITEM, called="checked_div", shown="/",
      checked="/", fault=Fault("division by zero", "b == 0.0")),
    _(CHECKED_EXPT, _TWO, REAL, traits=Trait.ITEM, called="checked_expt", shown="expt",
      checked="expt", fault=Fault("math domain or range error",
                  "isfinite(a) and isfinite(b) and not isfinite(y)")),
)  # fmt: skip

OPERATORS = table(
    *(_ARITHMETIC, _OF_REALS, _CHOICES, _CONSTANTS, _TESTS_OF_REALS, _CHECKS),
    *(_TESTS, _WORLD, _VECTORS, _PAIRS, _ITEMS),
)
"""All operators but derivatives, faults, external ones and those on whole vectors."""


def names_with(trait: Trait) -> frozenset[str]:
    """The operators that have a trait.

    Examples:
        >>> sorted(names_with(Trait.CHOICE))
        ['max', 'min']
    """
    return frozenset(name for name, row in OPERATORS.items() if row.traits & trait)
