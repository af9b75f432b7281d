"""Operators on doubles as expressions of C."""

from retape.engines.vlad.language._builtins import ELEMENTARY

_COMPARISONS = {"=": "==", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_AGAINST_ZERO = {"zero?": "==", "positive?": ">", "negative?": "<"}
_C_FUNCTIONS = {
    "atan": "double_atan",
    "expt": "double_expt",
    "remainder": "double_remainder",
    "modulo": "vlad_modulo",
    "floor-divide": "python_floor_divide",
}


def operator_text(op: str, a: str, b: str) -> str:
    """An operator's result, from the texts of its operands."""
    if op in ("+", "-", "*", "/"):
        return f"{a} {op} {b}"
    if op in ELEMENTARY:
        return f"double_{op}({a})"
    if op in _COMPARISONS:
        return f"{a} {_COMPARISONS[op]} {b}"
    if op in _AGAINST_ZERO:
        return f"{a} {_AGAINST_ZERO[op]} 0.0"
    if op in _C_FUNCTIONS:
        return f"{_C_FUNCTIONS[op]}({a}, {b})"
    match op:
        case "finite?":
            return f"isfinite({a}) != 0"
        case "min":
            return f"{b} < {a} ? {b} : {a}"
        case "max":
            return f"{b} > {a} ? {b} : {a}"
        case "(-)":
            return f"-{a}"
        case "floor":
            return f"floor({a})"
        case "check-integer" | "real":
            return a
    raise AssertionError(f"no typed operator is called {op}")


def real_text(value: float) -> str:
    """A double in C."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "HUGE_VAL" if value > 0 else "(-HUGE_VAL)"
    return f"({value.hex()})" if str(value).startswith("-") else value.hex()
