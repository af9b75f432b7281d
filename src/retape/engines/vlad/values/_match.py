"""Parameters at run time: what takes an argument apart on entry."""

from collections.abc import Callable

from retape.engines.vlad.language._core import Pattern, PConst, PPair, PVar
from retape.engines.vlad.values._values import Mismatch, Value, kind_of, show_pattern

Environment = tuple[Value, ...]


def binder(pattern: Pattern) -> Callable[[Value], Environment]:
    """A function from an argument to the values that a parameter binds, in order."""
    match pattern:
        case PVar():
            return lambda v: (v,)
        case PPair(car=PVar(), cdr=PVar()):
            return lambda v: v if type(v) is tuple and v else _mismatch(pattern, v)
    return lambda v: _bind(pattern, v)


def _bind(pattern: Pattern, value: Value) -> Environment:
    bound: list[Value] = []
    stack: list[tuple[Pattern, Value]] = [(pattern, value)]
    while stack:
        part, v = stack.pop()
        match part:
            case PVar():
                bound.append(v)
            case PPair():
                if type(v) is not tuple or not v:
                    _mismatch(pattern, value)
                stack.extend(((part.cdr, v[1]), (part.car, v[0])))
            case PConst():
                if not same_constant(part.value, v):
                    _mismatch(pattern, value)
    return tuple(bound)


def same_constant(constant: Value, value: Value) -> bool:
    """Tell whether an argument is the constant that a parameter demands."""
    while hasattr(value, "primal"):
        value = value.primal
    return type(value) is type(constant) and bool(value == constant)


def _mismatch(pattern: Pattern, value: Value) -> Environment:
    raise Mismatch(
        f"the argument, {kind_of(value)}, does not match the parameter "
        f"`{show_pattern(pattern)}`"
    )
