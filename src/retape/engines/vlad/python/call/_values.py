"""Arguments and results: Python's values, and those of the language, by their types."""

import sys
from dataclasses import dataclass
from typing import Any

from retape._errors import GradientTypeError
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    ArrayType,
    FunctionType,
    OneOf,
    TupleType,
    Type,
    as_floats,
)
from retape.engines.vlad.python.terms._arithmetic import LARGEST_INT
from retape.engines.vlad.python.terms._statics import function_key
from retape.engines.vlad.values._values import Value
from retape.engines.vlad.values._versioned_arrays import vector


@dataclass(frozen=True, slots=True)
class Tangent:
    """An argument that is a tangent: the lengths of its arrays have none."""

    value: Any


def type_of(value: Any) -> Type:
    """The type of an argument.

    Raises:
        GradientTypeError: If it is no value of a compiled function.
    """
    if isinstance(value, Tangent):
        return as_floats(type_of(value.value))
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float) and _has_known_operators(value):
        return FLOAT
    if isinstance(value, int):
        if abs(value) > LARGEST_INT:
            raise GradientTypeError(
                f"the int {value} is above 2**53 and would be rounded; pass a float"
            )
        return INT
    if value is None:
        return NONE
    if isinstance(value, tuple):
        return TupleType(tuple(type_of(item) for item in value))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found = _numpy_type(numpy, value)
        if found is not None:
            return found
    key = function_key(value)
    if key is not None:
        return FunctionType(key)
    raise GradientTypeError(
        f"`{_brief(value)}` of type `{type(value).__name__}` is not a value of a "
        "compiled "
        "function; pass numbers, bools, tuples of them, functions, or NumPy arrays of "
        "one or two dimensions"
    )


def _has_known_operators(value: float) -> bool:
    """Tell whether a float is one of Python or NumPy, whose operators are known."""
    return type(value) is float or type(value).__module__ == "numpy"


def are_exact(leaves: tuple[Any, ...]) -> bool:
    """Tell whether ints among these are no larger than doubles tell apart."""
    for leaf in leaves:  # asked before every call: no generator
        if type(leaf) is int and not -LARGEST_INT <= leaf <= LARGEST_INT:
            return False
    return True


def kinds_of_leaves(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What numbers, bools and arrays of doubles are; `()` if there is anything else.

    Arguments of the same kinds have the same types: this is asked before every call,
    and takes a tenth of the time of asking for those.
    """
    kinds: list[Any] = []
    for arg in args:
        kind = type(arg)
        if kind not in _NUMBERS:
            if kind.__name__ != "ndarray" or kind.__module__ != "numpy":
                return ()
            dtype, kind = arg.dtype, arg.ndim
            if not 1 <= kind <= 2 or dtype.char != "d" or not dtype.isnative:
                return ()
        kinds.append(kind)
    return tuple(kinds)


_ITEM_TYPES = {INT: int, BOOL: bool}
"""What the items of arrays are, where they are no floats."""

_NUMBERS = frozenset((float, int, bool))


def _numpy_type(numpy: Any, value: Any) -> Type | None:
    if isinstance(value, numpy.generic):
        if isinstance(value, numpy.timedelta64):  # an integer to NumPy
            return None
        if isinstance(value, numpy.bool_):
            return BOOL
        if isinstance(value, numpy.integer):
            return type_of(int(value))
        return None  # doubles are floats of Python
    if not isinstance(value, numpy.ndarray):
        return None
    if type(value) not in (numpy.ndarray, numpy.memmap):
        # Masks, units, or a `*` that is a product of matrices would be lost.
        raise GradientTypeError(
            f"an array of type `{type(value).__name__}` may mean another thing by its "
            "operators; pass `numpy.asarray(a)`, or the plain array that you mean"
        )
    if value.dtype == numpy.int64 and value.ndim in (1, 2):
        if value.size and max(int(value.max()), -int(value.min())) > LARGEST_INT:
            raise GradientTypeError(
                "an array has an int above 2**53, which would be rounded; pass "
                "`a.astype(float)`"
            )
        return ArrayType(value.ndim, INT)
    if value.dtype != numpy.float64:
        raise GradientTypeError(
            f"an array of `{value.dtype}` is not a value of a compiled function, whose "
            "arrays are of doubles, or of `int64` if they are only read; pass "
            "`a.astype(float)`"
        )
    if value.ndim == 0:
        return FLOAT
    if value.ndim > 2:
        raise GradientTypeError(
            f"an array of {value.ndim} dimensions is not a value of a compiled "
            "function; pass one or two dimensions"
        )
    return ArrayType(value.ndim)


def argument_to_language(value: Any, type_: Type, arrays: bool) -> Value:
    """An argument as the language has it; `arrays` leaves arrays to compiled code."""
    tangent = isinstance(value, Tangent)
    if tangent:
        value = value.value
    match type_:
        case TupleType(items=()):
            return ()
        case TupleType(items=items):
            if tangent:
                value = tuple(Tangent(item) for item in value)
            parts = [
                argument_to_language(v, t, arrays)
                for v, t in zip(value, items, strict=True)
            ]
            return _nested(parts)
        case ArrayType():
            made = _array_to_language(value, arrays)
            return ((0.0, 0.0), made[1]) if tangent and type_.rank == 2 else made
        case FunctionType():
            return ()
    if type_ is NONE:
        return ()
    return bool(value) if type_ is BOOL else float(value)


def _array_to_language(value: Any, arrays: bool) -> Value:
    import numpy

    data = numpy.ascontiguousarray(value, dtype=numpy.float64).reshape(-1)
    made: Any = data if arrays else vector(data.tolist())
    if value.ndim == 1:
        return made
    rows, columns = value.shape
    return ((float(rows), float(columns)), made)


def _nested(parts: list[Value]) -> Value:
    *rest, result = parts
    for part in reversed(rest):
        result = (part, result)
    return result


def result_to_python(value: Value, type_: Type) -> Any:
    """A result as Python has it: ints are ints, arrays are NumPy's."""
    match type_:
        case TupleType(items=()):
            return ()
        case TupleType(items=items):
            found: list[Any] = []
            for item in items[:-1]:
                found.append(result_to_python(value[0], item))
                value = value[1]
            return (*found, result_to_python(value, items[-1]))
        case OneOf(items=items):
            number, value = value
            return result_to_python(value, items[int(number)])
        case ArrayType(rank=rank):
            shape, data = ((-1,), value) if rank == 1 else value
            array = _array(data).reshape([int(n) for n in shape])
            return (
                array if type_.item is FLOAT else array.astype(_ITEM_TYPES[type_.item])
            )
        case FunctionType():
            raise GradientTypeError(
                "a compiled function cannot return a function; return its values"
            )
    if type_ is NONE:
        return None
    return int(value) if type_ is INT else value


def _array(value: Any) -> Any:
    import numpy

    if isinstance(value, numpy.ndarray):
        return value
    return numpy.array(value.items(), dtype=numpy.float64)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
