"""Arguments and results: Python's values, and those of the language, by their types."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from retape._errors import GradientTypeError
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    MOST_DIMENSIONS,
    NONE,
    UNKNOWN,
    ArrayType,
    FunctionType,
    ListType,
    NoCommonType,
    OneOf,
    RecordType,
    Scalar,
    TupleType,
    Type,
    as_floats,
    has_width,
    join,
    kind_of_type,
    record_parts,
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
    record = record_parts(value)
    if record is not None:
        names, made, parts = record
        return RecordType(tuple(type_of(item) for item in parts), names, made)
    if isinstance(value, tuple):
        return TupleType(tuple(type_of(item) for item in value))
    if type(value) is list:
        return _list_type(value)
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
        "compiled function; pass numbers, bools, tuples, named tuples and dataclasses "
        "of them, lists, functions, or NumPy arrays of one to four dimensions"
    )


def _list_type(value: list[Any]) -> Type:
    """The type of a list, whose items are of one."""
    found: Type = UNKNOWN
    for item in value:
        try:
            found = join(found, type_of(item))
        except NoCommonType as error:
            raise GradientTypeError(
                f"a list has {error}; pass items of one kind, or a tuple"
            ) from None
    if not has_width(found):
        raise GradientTypeError(
            f"a list of {kind_of_type(found)} is not a value of a compiled function; "
            "pass a list of numbers, of bools, of tuples of them, or of arrays of one "
            "dimension, or an array"
        )
    if len({len(item) for item in value if hasattr(item, "shape")}) > 1:
        raise GradientTypeError(
            "the arrays of a list differ in length, which is not compiled; fill them "
            "up to one length"
        )
    return ListType(found)


def _has_known_operators(value: float) -> bool:
    """Tell whether a float is one of Python or NumPy, whose operators are known."""
    return type(value) is float or type(value).__module__ == "numpy"


_ITEM_TYPES = {INT: int, BOOL: bool}
"""What the items of arrays are, where they are no floats."""


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
    if value.dtype == numpy.int64 and 1 <= value.ndim <= MOST_DIMENSIONS:
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
    if value.ndim > MOST_DIMENSIONS:
        raise GradientTypeError(
            f"an array of {value.ndim} dimensions is not a value of a compiled "
            f"function; pass at most {MOST_DIMENSIONS}, by `a.reshape(...)`"
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
            record = record_parts(value)
            given = value if record is None else record[2]
            if tangent:
                given = tuple(Tangent(item) for item in given)
            parts = [
                argument_to_language(v, t, arrays)
                for v, t in zip(given, items, strict=True)
            ]
            return _nested(parts)
        case ListType():
            return _list_to_language(value, type_, arrays, tangent)
        case ArrayType():
            shape, made = _array_to_language(value, arrays)
            if type_.rank == 1:
                return made
            return _nested([0.0] * len(shape) if tangent else shape), made
        case FunctionType():
            return ()
    if type_ is NONE:
        return ()
    return bool(value) if type_ is BOOL else float(value)


def _array_to_language(value: Any, arrays: bool) -> tuple[list[Value], Value]:
    """The shape of an array, and its items."""
    import numpy

    data = numpy.ascontiguousarray(value, dtype=numpy.float64).reshape(-1)
    made: Any = data if arrays else vector(data.tolist())
    return [float(n) for n in value.shape], made


def _list_to_language(
    value: list[Any], type_: ListType, arrays: bool, tangent: bool
) -> Value:
    import numpy

    items = [numbers_of(item) for item in value]
    width = len(items[0]) if items else 0
    data = numpy.array(items, dtype=numpy.float64)
    _, made = _array_to_language(data, arrays)
    return ((0.0, 0.0) if tangent else (float(len(items)), float(width))), made


def numbers_of(value: Any) -> list[float]:
    """The numbers in an item of a list."""
    if isinstance(value, tuple):
        return [number for item in value for number in numbers_of(item)]
    if hasattr(value, "shape") and value.shape:
        return [float(each) for each in value]
    return [float(value)]


def _nested(parts: list[Value]) -> Value:
    *rest, result = parts
    for part in reversed(rest):
        result = (part, result)
    return result


def result_to_python(value: Value, type_: Type) -> Any:
    """A result as Python has it: ints are ints, arrays are NumPy's."""
    match type_:
        case RecordType(items=items):
            return type_.of(_unnested(value, items))
        case TupleType(items=items):
            return _unnested(value, items)
        case ListType(item=item):
            (count, width), data = value
            rows = _array(data)[: int(count) * int(width)]
            rows = rows.reshape(int(count), int(width))
            return [_item_of_list(iter(row), row, item) for row in rows]
        case OneOf(items=items):
            number, value = value
            return result_to_python(value, items[int(number)])
        case ArrayType(rank=rank):
            shape, data = ((), value) if rank == 1 else value
            lengths = _unnested(shape, (INT,) * rank) if rank > 1 else -1
            array = _array(data).reshape(lengths)
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


def _unnested(value: Value, items: tuple[Type, ...]) -> tuple[Any, ...]:
    """A tuple of the language as Python's."""
    found: list[Any] = []
    for item in items[:-1]:
        found.append(result_to_python(value[0], item))
        value = value[1]
    return (*found, result_to_python(value, items[-1])) if items else ()


def _item_of_list(numbers: Iterator[Any], row: Any, type_: Type) -> Any:
    """An item of a list from its numbers, which stand in a row."""
    if isinstance(type_, ArrayType):
        return row.copy()
    if isinstance(type_, TupleType):
        parts = [_item_of_list(numbers, row, item) for item in type_.items]
        return type_.of(parts) if isinstance(type_, RecordType) else tuple(parts)
    number = float(next(numbers))
    kind = _ITEM_TYPES.get(type_) if isinstance(type_, Scalar) else None
    return number if kind is None else kind(number)


def _array(value: Any) -> Any:
    import numpy

    if isinstance(value, numpy.ndarray):
        return value
    return numpy.array(value.items(), dtype=numpy.float64)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
