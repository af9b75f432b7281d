"""Values of the interpreter and the hybrid, and how any value is printed.

Reals are Python floats (or the derivative numbers of `values/_dual_and_taped`),
booleans are bools, `()` is the empty tuple, a pair is a tuple of two, a function is a
`Closure`, a vector a `Version` of an array.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from retape.engines.vlad.language._core import Pattern, PConst, PPair, PVar
from retape.engines.vlad.language._reader import show_constant
from retape.engines.vlad.values._versioned_arrays import Version

Value: TypeAlias = Any
"""A value of the language; what it may be stands at the top of this module."""


class Mismatch(Exception):
    """An operand that an operation cannot take; the evaluator adds the place."""


class Closure:
    """A function with the values of its free variables.

    `code` is what an evaluator runs; it has a `name` and a `pattern`.
    """

    __slots__ = ("code", "env")

    def __init__(self, code: Any, env: tuple[Value, ...]) -> None:
        self.code = code
        self.env = env


@dataclass(frozen=True, slots=True)
class Shown:
    """A function as another implementation hands it out: only its name is left."""

    name: str | None


def show(value: Value) -> str:
    """Print a value as the language writes it, whatever its size and depth.

    Examples:
        >>> show((1.0, (0.5, ())))
        '(1 0.5)'
    """
    return "".join(_show(value))


def _show(value: Value) -> Iterator[str]:
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        if type(item) is _Text:
            yield item.text
        elif type(item) is _Rest:
            _rest(item.value, stack)
        elif type(item) is tuple and item:
            yield "("
            stack.extend((_Rest(item[1]), item[0]))
        elif type(item) is Version:
            yield "#("
            _elements(item.items(), stack)
        else:
            yield show_atom(item)


class _Text:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _Rest:
    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def _rest(value: Value, stack: list[Value]) -> None:
    """The printed rest of a list, after its first element."""
    if type(value) is tuple and value:
        stack.extend((_Rest(value[1]), value[0], _Text(" ")))
    elif value == () and type(value) is tuple:
        stack.append(_Text(")"))
    else:
        stack.extend((_Text(")"), value, _Text(" . ")))


def _elements(items: list[Value], stack: list[Value]) -> None:
    """The elements of a vector that has been opened."""
    stack.append(_Text(")"))
    for index in range(len(items) - 1, -1, -1):
        stack.append(items[index])
        if index:
            stack.append(_Text(" "))


def show_atom(value: Any) -> str:
    """Print anything but a pair, and of a vector its length."""
    if type(value) is Version:
        return repr(value)
    if type(value) is tuple:
        return "()" if not value else "a pair"
    if isinstance(value, (bool, float)):
        return show_constant(value)
    primal = getattr(value, "primal", None)
    if primal is not None:
        return show_atom(primal)
    name = value.name if isinstance(value, Shown) else value.code.name
    return f"#<procedure {name}>" if name else "#<procedure>"


def show_pattern(pattern: Pattern) -> str:
    """Print a parameter as the program wrote it, for messages."""
    match pattern:
        case PVar():
            return pattern.name.rsplit(".", 1)[0]
        case PConst():
            return "()" if pattern.value == () else show_atom(pattern.value)
        case PPair():
            return f"(cons {show_pattern(pattern.car)} {show_pattern(pattern.cdr)})"


def kind_of(value: Value) -> str:
    """The kind of an argument, for messages."""
    if type(value) is tuple and value:
        return "a pair"
    if type(value) is Version:
        return f"a vector of {len(value.items())}"
    return f"`{show_atom(value)}`"


def describe_shape(value: Value) -> str:
    """The shape at one place of a (co)tangent or its primal, for messages."""
    if type(value) is float or hasattr(value, "primal"):
        return "a real"
    return kind_of(value)


# parameters at run time: what takes an argument apart on entry

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
