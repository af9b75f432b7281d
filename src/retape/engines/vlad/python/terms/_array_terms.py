"""Terms of arrays: one dimension is a vector, more a pair of a shape and a vector.

array of n rows, m columns   ->   (cons (cons n m) items), row by row
"""

from collections.abc import Callable, Sequence
from functools import reduce

from retape.engines.vlad.language._core import Core, If, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import (
    ADD,
    CONS,
    EQUAL,
    IS_NEGATIVE,
    LESS,
    MULTIPLY,
    VECTOR_LENGTH,
)
from retape.engines.vlad.python.terms._arithmetic import fault
from retape.engines.vlad.python.terms._core_builder import (
    CoreBuilder,
    nested_pattern,
    tuple_pattern,
)


def if_alike(where: Where, lengths: list[Core], result: Core) -> Core:
    """A term that needs equal lengths of arrays."""
    if len(lengths) < 2:
        return result
    same = Prim(where, EQUAL, (lengths[0], lengths[1]))
    return If(where, same, result, fault(where, "the lengths of two arrays differ"))


def length_of(where: Where, vector: Core) -> Core:
    """The length of an array of one dimension."""
    return Prim(where, VECTOR_LENGTH, (vector,))


def wrapped(where: Where, index: Core, length: Core) -> Core:
    """An index that may count from the end."""
    moved = Prim(where, ADD, (index, length))
    return If(where, Prim(where, IS_NEGATIVE, (index,)), moved, index)


def in_range(
    where: Where, index: Core, length: Core, natural: bool, inside: Core
) -> Core:
    """A term that needs an index to be one of so many."""
    wrong = fault(where, "index out of range")
    inner = If(where, Prim(where, LESS, (index, length)), inside, wrong)
    if natural:
        return inner
    return If(where, Prim(where, IS_NEGATIVE, (index,)), wrong, inner)


def product_of(where: Where, lengths: Sequence[Core]) -> Core:
    """How many items there are in an array of these lengths."""
    return reduce(lambda a, b: Prim(where, MULTIPLY, (a, b)), lengths)


def opened(
    build: CoreBuilder,
    where: Where,
    array: Core,
    body: Callable[..., Core],
    rank: int = 2,
) -> Core:
    """An array of several dimensions, taken apart: shape, lengths, items."""
    names = parts_of_shape(build, rank)
    inside = body(*(Var(where, name) for name in names))
    return opened_as(build, where, array, names, inside)


def parts_of_shape(build: CoreBuilder, rank: int) -> list[str]:
    """New names for the shape, the lengths and the items of an array."""
    return [build.fresh(name) for name in ("shape", *["length"] * rank, "data")]


def opened_as(
    build: CoreBuilder, where: Where, array: Core, names: list[str], inside: Core
) -> Core:
    """The same with names for its shape, its lengths and its items."""
    shape, *lengths, data = names
    inner = build.let(where, tuple_pattern(lengths), Var(where, shape), inside)
    outer = nested_pattern([PVar(shape), PVar(data)])
    return build.let(where, outer, array, inner)


def shape_term(build: CoreBuilder, where: Where, array: Core, rank: int = 2) -> Core:
    """The shape of an array of several dimensions."""
    return opened(build, where, array, lambda *parts: parts[0], rank)


def length_of_first(
    build: CoreBuilder, where: Where, array: Core, rank: int = 2
) -> Core:
    return opened(build, where, array, lambda *parts: parts[1], rank)


def items_of(build: CoreBuilder, where: Where, array: Core, rank: int) -> Core:
    """The items of an array, one row after another, as a vector."""
    if rank == 1:
        return array
    return opened(build, where, array, lambda *parts: parts[-1], rank)


def of_shape(
    build: CoreBuilder,
    where: Where,
    shape: Core,
    rank: int,
    items: Callable[[Core], Core],
) -> Core:
    """An array of several dimensions, of a shape, and of so many items."""
    both, *lengths = [build.fresh(n) for n in ("shape", *["length"] * rank)]
    size = product_of(where, [Var(where, each) for each in lengths])
    made: Core = Prim(where, CONS, (Var(where, both), items(size)))
    for each in lengths:  # of two that are negative the product is not
        wrong = fault(where, "a negative length of an array")
        made = If(where, Prim(where, IS_NEGATIVE, (Var(where, each),)), wrong, made)
    inside = build.let(where, tuple_pattern(lengths), Var(where, both), made)
    return build.let_var(where, both, shape, inside)
