"""Signatures as Numba's users write them: `"float64(float64[:], int64)"`."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from retape._errors import GradientTypeError
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    MOST_DIMENSIONS,
    NONE,
    ArrayType,
    Scalar,
    TupleType,
    Type,
)

_NAMES: dict[str, Scalar] = {
    **dict.fromkeys(("float64", "f8", "double", "float_", "float"), FLOAT),
    **dict.fromkeys(("int64", "i8", "intp", "int_", "int"), INT),
    **dict.fromkeys(("boolean", "bool_", "b1", "bool"), BOOL),
    **dict.fromkeys(("void", "none"), NONE),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """The types of arguments, and that of the value, if it is given."""

    args: tuple[Type, ...]
    returns: Type | None
    text: str


def parse_signatures(given: str | Sequence[str]) -> tuple[Declared, ...]:
    """What one signature says, or several.

    Raises:
        GradientTypeError: If one is not read.

    Examples:
        >>> parse_signatures("f8(f8[:, :], i8)")[0].args
        (ArrayType(rank=2, item=<Scalar.FLOAT: 'a float'>), <Scalar.INT: 'an int'>)
    """
    texts = [given] if isinstance(given, str) else [*given]
    if not all(isinstance(text, str) for text in texts):
        raise _unread(given)
    return tuple(_declaration_of(text) for text in texts)


def _declaration_of(text: str) -> Declared:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise _unread(text) from None
    if isinstance(node, ast.Call):
        args = tuple(_declared_type(each, text) for each in node.args)
        return Declared(args, _declared_type(node.func, text), text)
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return Declared(tuple(_declared_type(each, text) for each in parts), None, text)


def _declared_type(node: ast.expr, text: str) -> Type:
    match node:
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Subscript(value=ast.Name(id=name), slice=axes):
            parts = axes.elts if isinstance(axes, ast.Tuple) else [axes]
            item = _NAMES.get(name)
            slices = all(isinstance(each, ast.Slice) for each in parts)
            if item in (FLOAT, INT) and slices and len(parts) <= MOST_DIMENSIONS:
                return ArrayType(len(parts), item)
        case ast.Call(func=ast.Name(id="Tuple"), args=[ast.Tuple(elts=items)]):
            return TupleType(tuple(_declared_type(each, text) for each in items))
        case ast.Call(func=ast.Name(id="UniTuple"), args=[item, ast.Constant(int(n))]):
            return TupleType((_declared_type(item, text),) * n)
    raise _unread(text)


def _unread(given: object) -> GradientTypeError:
    return GradientTypeError(
        f"the signature `{given!r}` is not read; write a text such as "
        '"float64(float64[:], int64)", of `float64`, `int64`, `boolean`, arrays of '
        "them, `Tuple((...))` and `UniTuple(type, n)`, or leave it out"
    )
