"""Terms of arrays: one dimension is a vector, two a pair of a shape and a vector.

array of n rows, m columns   ->   (cons (cons n m) items), row by row
"""

from collections.abc import Callable
from typing import Literal

from retape.engines.vlad.language._core import Core, If, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import IS_NEGATIVE, VECTOR_LENGTH
from retape.engines.vlad.python.terms._arithmetic import fault
from retape.engines.vlad.python.terms._core_builder import CoreBuilder, nested_pattern


def if_alike(where: Where, lengths: list[Core], result: Core) -> Core:
    """A term that needs equal lengths of arrays."""
    if len(lengths) < 2:
        return result
    same = Prim(where, "=", (lengths[0], lengths[1]))
    return If(where, same, result, fault(where, "the lengths of two arrays differ"))


def length_of(where: Where, vector: Core) -> Core:
    """The length of an array of one dimension."""
    return Prim(where, VECTOR_LENGTH, (vector,))


def wrapped(where: Where, index: Core, length: Core) -> Core:
    """An index that may count from the end."""
    moved = Prim(where, "+", (index, length))
    return If(where, Prim(where, IS_NEGATIVE, (index,)), moved, index)


def in_column(
    where: Where, column: Core, columns: Core, natural: bool, at: Core
) -> Core:
    """A place in a flat array, if its column exists."""
    wrong = fault(where, "index out of range")
    inner = If(where, Prim(where, "<", (column, columns)), at, wrong)
    if natural:
        return inner
    return If(where, Prim(where, IS_NEGATIVE, (column,)), wrong, inner)


def opened(
    build: CoreBuilder,
    where: Where,
    array: Core,
    body: Callable[[Core, Core, Core, Core], Core],
) -> Core:
    """An array of two dimensions, taken apart."""
    names = [build.fresh(name) for name in ("shape", "rows", "columns", "data")]
    inside = body(*(Var(where, name) for name in names))
    return opened_as(build, where, array, names, inside)


def opened_as(
    build: CoreBuilder, where: Where, array: Core, names: list[str], inside: Core
) -> Core:
    """The same with names for its shape, its rows, its columns and its items."""
    shape, rows, columns, data = names
    pair = nested_pattern([PVar(rows), PVar(columns)])
    inner = build.let(where, pair, Var(where, shape), inside)
    outer = nested_pattern([PVar(shape), PVar(data)])
    return build.let(where, outer, array, inner)


def part_of(
    build: CoreBuilder,
    where: Where,
    array: Core,
    part: Literal["shape", "rows", "columns", "items"],
) -> Core:
    """A part of an array of two dimensions."""
    index = ("shape", "rows", "columns", "items").index(part)
    return opened(build, where, array, lambda *parts: parts[index])
