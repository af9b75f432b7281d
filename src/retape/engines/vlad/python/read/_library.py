"""Functions of `math`, NumPy and builtins that compiled functions may call."""

import math
from typing import Any

from retape.engines.vlad.operators._table import OPERATORS
from retape.engines.vlad.python.library._table import ARRAY_FUNCTIONS

_ELEMENTARY = [name for name, row in OPERATORS.items() if row.is_elementary]

MATH: dict[str, str] = {
    **{name: name for name in _ELEMENTARY if hasattr(math, name)},
    "fabs": "abs",
}
"""Functions of `math` of one number, and their operators; they raise as Python's do."""

NUMPY: dict[str, str] = {
    **{name: name for name in _ELEMENTARY if name != "erf"},
    "absolute": "abs",
    "arcsin": "asin",
    "arccos": "acos",
}
"""Functions of NumPy of one number or array; they give infinities and NaNs."""

_BUILTINS: dict[Any, str] = {
    abs: "abs",
    min: "min",
    max: "max",
    int: "int",
    float: "float",
    bool: "bool",
    len: "len",
    range: "range",
    list: "list",
    sum: "sum",
    pow: "pow",
    math.floor: "floor",
    math.ceil: "ceil",
    math.trunc: "int",
    math.pow: "math.pow",
    math.atan: "atan",
    math.atan2: "atan2",
    math.hypot: "hypot",
    math.isfinite: "isfinite",
    math.isnan: "isnan",
    math.degrees: "degrees",
    math.radians: "radians",
}

_OTHER_NAMES = {"amax": "max", "amin": "min"}
"""As releases of NumPy before 2 call them."""


def known_function(value: Any) -> tuple[str, str] | None:
    """The rule that compiles a library function: its kind, and its name.

    Kinds are "math" and "numpy" (an operator of one number), "builtin" and "array".

    Examples:
        >>> known_function(math.tan), known_function(max), known_function(print)
        (('math', 'tan'), ('builtin', 'max'), None)
    """
    name = getattr(value, "__name__", "")
    if getattr(value, "__module__", None) == "math" and name in MATH:
        return "math", MATH[name]
    if _is_numpy(value):
        if name in NUMPY:
            return "numpy", NUMPY[name]
        name = _OTHER_NAMES.get(name, name)
        if name in ARRAY_FUNCTIONS and _is_of_arrays(value):
            return "array", name
        if name == "float64":
            return "builtin", "float"
        return None
    try:
        found = _BUILTINS.get(value)
    except TypeError:  # not hashable
        return None
    return None if found is None else ("builtin", found)


def _is_of_arrays(value: Any) -> bool:
    """Whether a function is NumPy's own, and not that of its matrices or masks."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return module in ("numpy", "numpy.linalg")


def _is_numpy(value: Any) -> bool:
    module = getattr(value, "__module__", None) or type(value).__module__
    return module == "numpy" or module.startswith("numpy.")
