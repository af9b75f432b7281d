"""Values of the outside that a compiled function reads: constants and functions."""

from types import BuiltinFunctionType
from types import FunctionType as PythonFunction
from typing import Any

from retape.engines.vlad.language._core import Const
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.library._table import known_function
from retape.engines.vlad.python.read._types import (
    NONE,
    FunctionType,
    RecordType,
    TupleType,
    is_frozen,
    is_record_class,
    record_parts,
)
from retape.engines.vlad.python.terms._arithmetic import LARGEST_INT, Operand, literal
from retape.engines.vlad.python.terms._core_builder import tuple_of


def static_value(where: Where, value: Any) -> Operand | None:
    """A constant or a function as a term; `None` for what is not compiled."""
    if value is None:
        return Operand(Const(where, ()), NONE)
    if isinstance(value, bool | float):
        return literal(where, value)
    if isinstance(value, int):
        return None if abs(value) > LARGEST_INT else literal(where, value)
    record = record_parts(value) if is_frozen(value) else None
    if isinstance(value, tuple) or record is not None:
        parts = [static_value(where, item) for item in (record[2] if record else value)]
        if any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        items = tuple(each.type for each in known)
        types = RecordType(items, *record[:2]) if record else TupleType(items)
        return Operand(tuple_of(where, [each.core for each in known]), types)
    key = function_key(value)
    return None if key is None else Operand(Const(where, ()), FunctionType(key))


def function_key(value: Any) -> Any:
    """The object that a callable is compiled as; `None` if it is not compiled."""
    inner = getattr(value, "__retape_function__", None)
    if inner is not None:
        return function_key(inner)
    if hasattr(value, "__retape_derivative__"):
        return value
    if isinstance(value, PythonFunction) or is_record_class(value):
        return value
    if isinstance(value, BuiltinFunctionType | type) or callable(value):
        return value if known_function(value) is not None else None
    return None
