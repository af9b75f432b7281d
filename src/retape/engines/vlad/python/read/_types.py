"""Types of Python values in a compiled function, each with its form in the language.

    int, float     a real; an int is checked not to leave what a real holds exactly
    bool, None     a boolean, ()
    tuple          (a, b, c) is (cons a (cons b c)), (a,) is a, () is ()
    named tuple, dataclass, dict of fixed keys      the tuple of its items
    array          of one dimension a vector; of more (cons (cons d0 d1 ...) vector)
    list           (cons (cons length width) vector): so many numbers for each item,
                   in a vector with room for more
    function       the tuple of the values that it takes from outside

A function's type says which function it is, so every call is of a known function.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from enum import Enum
from inspect import Parameter, signature
from types import FunctionType as PythonFunction
from typing import Any, TypeAlias


class Scalar(Enum):
    """Types without parts."""

    INT = "an int"
    FLOAT = "a float"
    BOOL = "a bool"
    NONE = "None"
    UNKNOWN = "a value that is never returned"


INT, FLOAT, BOOL, NONE, UNKNOWN = Scalar
NUMBERS = (INT, FLOAT)


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple of known length."""

    items: "tuple[Type, ...]"


@dataclass(frozen=True, slots=True)
class RecordType(TupleType):
    """A tuple whose items have names.

    Attributes:
        names: Those of the items.
        made: What a value is an object of: the class of a named tuple or a dataclass,
            or `dict`.
    """

    names: tuple[str, ...]
    made: Any

    def of(self, parts: Iterable[Any]) -> Any:
        """The object that has these parts."""
        return self.made(**dict(zip(self.names, parts, strict=True)))


@dataclass(frozen=True, slots=True)
class ListType:
    """A list: of numbers, bools, tuples of them, or arrays of one dimension."""

    item: "Type"


MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array of floats, of one to four dimensions; one of ints is only read.

    Attributes:
        line: Of an array of two dimensions: "row" or "column", if it is known to have
            only one, and is repeated beside an array that has more.
    """

    rank: int
    item: Scalar = Scalar.FLOAT
    line: str = field(default="", repr=False)

    @property
    def plain(self) -> "ArrayType":
        """The same without what is known of its lengths."""
        return replace(self, line="")


@dataclass(frozen=True, slots=True)
class FunctionType:
    """A known function, and the types of what it takes from outside."""

    key: Any
    captured: "tuple[tuple[str, Type], ...]" = ()


@dataclass(frozen=True, slots=True)
class OneOf:
    """Types of which running tells one: a value has its type's number before it."""

    items: "tuple[Type, ...]"


Type: TypeAlias = Scalar | TupleType | ListType | ArrayType | FunctionType | OneOf


class NoCommonType(Exception):
    """Two ways through a program that give one variable values of different kinds."""


def join(a: Type, b: Type) -> Type:
    """The type of a value that is of one of two types.

    Raises:
        NoCommonType: If no variable can hold both.

    Examples:
        >>> join(INT, FLOAT).name
        'FLOAT'
    """
    if a == b or b is UNKNOWN:
        return a
    if a is UNKNOWN:
        return b
    if a in NUMBERS and b in NUMBERS:
        return FLOAT
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        if len(a.items) == len(b.items) and _empty(a) == _empty(b):
            pairs = zip(a.items, b.items, strict=True)
            return replace(a, items=tuple(join(x, y) for x, y in pairs))
    if isinstance(a, ListType) and isinstance(b, ListType):
        return ListType(join(a.item, b.item))
    if isinstance(a, ArrayType) and isinstance(b, ArrayType) and a.plain == b.plain:
        return a.plain
    raise NoCommonType(f"{kind_of_type(a)} on one way and {kind_of_type(b)} on another")


def _empty(type_: TupleType) -> TupleType:
    """What kind of a tuple it is, whatever is in it."""
    return replace(type_, items=())


def kind_of_type(type_: Type) -> str:
    """The kind of a type's values, for messages.

    Examples:
        >>> kind_of_type(TupleType((INT, FLOAT)))
        'a tuple of 2'
    """
    match type_:
        case Scalar():
            return type_.value
        case RecordType():
            return f"a `{type_.made.__name__}`"
        case TupleType():
            return f"a tuple of {len(type_.items)}"
        case ListType():
            return "a list"
        case ArrayType():
            of = {INT: "ints of ", BOOL: "bools of "}.get(type_.item, "")
            return f"an array of {of}{type_.rank} dimension{'s' * (type_.rank > 1)}"
        case FunctionType():
            return "a function"
        case OneOf():
            return " or ".join(kind_of_type(item) for item in type_.items)


def holds_arrays(type_: Type) -> bool:
    """Tell whether a value of a type has an array in it, which could be shared.

    So could a list, or a dict.
    """
    if is_changeable(type_):
        return True
    match type_:
        case TupleType() | OneOf():
            return any(holds_arrays(item) for item in type_.items)
        case FunctionType():
            return any(holds_arrays(item) for _, item in type_.captured)
        case _:
            return False


def is_changeable(type_: Type) -> bool:
    """Tell whether a value of a type can be changed in place: array, list or dict."""
    return isinstance(type_, ArrayType | ListType) or is_dict(type_)


def is_dict(type_: Type) -> bool:
    return isinstance(type_, RecordType) and type_.made is dict


def has_arrays_within(type_: Type) -> bool:
    """Tell whether it is a list or a dict in which an array of another name may be."""
    match type_:
        case ListType():
            return holds_arrays(type_.item)
        case TupleType() if not is_dict(type_):
            return any(has_arrays_within(item) for item in type_.items)
        case TupleType():
            return any(holds_arrays(item) for item in type_.items)
        case _:
            return False


def has_width(type_: Type) -> bool:
    """Tell whether lists are of such items: so many numbers, and nothing else."""
    if isinstance(type_, TupleType):
        return bool(type_.items) and all(
            has_width(item) and not isinstance(item, ArrayType) for item in type_.items
        )
    return type_ in (INT, FLOAT, BOOL) or type_ == ArrayType(1)


def is_differentiable(type_: Type) -> bool:
    """Tell whether a value of a type consists of reals only."""
    if isinstance(type_, TupleType):
        return all(is_differentiable(item) for item in type_.items)
    if isinstance(type_, ListType):
        return is_differentiable(type_.item)
    return type_ in NUMBERS or is_array_of_floats(type_)


def is_array_of_floats(type_: Type) -> bool:
    """Tell whether a type is of arrays with which there is arithmetic."""
    return isinstance(type_, ArrayType) and type_.item is FLOAT


def as_floats(type_: Type) -> Type:
    """The type with floats for ints: of what a derivative is taken by."""
    match type_:
        case Scalar.INT:
            return FLOAT
        case TupleType():
            return replace(type_, items=tuple(as_floats(item) for item in type_.items))
        case ListType():
            return ListType(as_floats(type_.item))
        case _:
            return type_


def is_record_class(value: Any) -> bool:
    """Whether a class is a named tuple or a dataclass that makes itself as all do.

    Examples:
        >>> from fractions import Fraction
        >>> from typing import NamedTuple
        >>> class Point(NamedTuple):
        ...     x: float
        >>> is_record_class(Point), is_record_class(Fraction)
        (True, False)
    """
    if not isinstance(value, type):
        return False
    if issubclass(value, tuple):
        return hasattr(value, "_fields") and _is_generated(value.__new__)
    return (
        is_dataclass(value)
        and _is_generated(value.__init__)
        and not hasattr(value, "__post_init__")
        and value.__getattribute__ is object.__getattribute__
        and [*parameters_of(value)] == [*value.__dataclass_fields__]
    )


def _is_generated(function: Any) -> bool:
    """Whether the library wrote a function, from a text of its own."""
    code = function.__code__ if isinstance(function, PythonFunction) else None
    return code is not None and code.co_filename.startswith("<")


def parameters_of(made: type) -> Mapping[str, Parameter]:
    """What a record class is called with, by name."""
    return signature(made).parameters


def record_parts(value: Any) -> tuple[tuple[str, ...], Any, tuple[Any, ...]] | None:
    """The names, the class and the parts of a record; `None` for another value."""
    made = type(value)
    if made is dict:
        if not value or not all(type(key) is str for key in value):
            return None
        return tuple(value), dict, tuple(value.values())
    if not is_record_class(made):
        return None
    names = tuple(parameters_of(made))
    return names, made, tuple(getattr(value, name) for name in names)


def is_frozen(value: Any) -> bool:
    """Whether nobody can give a record other parts."""
    if isinstance(value, tuple):
        return True
    options = getattr(value, "__dataclass_params__", None)
    return options is not None and options.frozen
