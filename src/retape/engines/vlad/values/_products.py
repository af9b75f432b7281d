"""Products of vectors and matrices: one operation of a tape, whatever their size.

    (vector-dot a b)            the sum of the products of their elements
    (matrix-product s a b)      c = a b, of matrices that lie in vectors row by row;
                                s is the pair of the rows and the columns of c

With adjoints dc of c, those of the factors are dc b^T and a^T dc; a tangent of c is
da b + a db. Where numbers carry derivatives of several levels, each of these is a
product at the level below, and so on down to floats.

An item is the sum from left to right; where b has one column it is eight sums, of each
eighth product, which are then added in pairs. `runtime/products.h` does the same, so
that all implementations agree in every bit of a value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retape.engines.vlad.operators._table import MATRIX_PRODUCT, VECTOR_DOT
from retape.engines.vlad.values._dual_and_taped import (
    Dual,
    Real,
    Tape,
    Taped,
    add,
    is_real,
    is_zero,
    mul,
    of_highest_level,
    strip,
)
from retape.engines.vlad.values._values import Mismatch, Value, show
from retape.engines.vlad.values._vectors import MAX_LENGTH, vector_items, whole_below
from retape.engines.vlad.values._versioned_arrays import Version, vector

SUMS = 8
"""Sums of which a dot product is made."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The rows and columns of a left factor, and the columns of the right one."""

    rows: int
    inner: int
    columns: int


def vector_dot(a: Value, b: Value) -> Real:
    """`(vector-dot a b)`."""
    x, y = elements_of(VECTOR_DOT, a), elements_of(VECTOR_DOT, b)
    if len(x) != len(y):
        raise Mismatch(unlike(VECTOR_DOT, len(x), len(y)))
    return _product(Sizes(1, len(x), 1), a, b)[0]


def matrix_product(shape: Value, a: Value, b: Value) -> Version:
    """`(matrix-product s a b)`."""
    x, y = elements_of(MATRIX_PRODUCT, a), elements_of(MATRIX_PRODUCT, b)
    sizes = _sizes(shape, len(x), len(y))
    if sizes is None:
        raise Mismatch(no_product(shape, len(x), len(y)))
    return vector(_product(sizes, a, b))


def elements_of(name: str, v: Value) -> list[Real]:
    items = vector_items(name, v)
    for item in items:
        if not is_real(item):
            strip(name, item)
    return items


def _sizes(shape: Value, a: int, b: int) -> Sizes | None:
    """The sizes of factors of such lengths; `None` if there are none."""
    if type(shape) is not tuple or not shape:
        return None
    rows, columns = (whole_below(part, MAX_LENGTH + 1) for part in shape)
    if rows is None or columns is None or rows * columns > MAX_LENGTH:
        return None
    inner = a // rows if rows else b // columns if columns else 0
    fits = rows * inner == a and inner * columns == b
    return Sizes(rows, inner, columns) if fits else None


def _product(sizes: Sizes, a: Version, b: Version) -> list[Real]:
    return _of_numbers(sizes, a.items(), b.items(), lambda: (a.items(), b.items()))


Factors = Callable[[], tuple[Sequence[Real], Sequence[Real]]]
"""The factors once more, when adjoints are propagated: a vector's elements are at hand
as long as it is, whatever has been set in its array since."""


def _of_numbers(
    sizes: Sizes, a: Sequence[Real], b: Sequence[Real], again: Factors
) -> list[Real]:
    top = of_highest_level((*a, *b))
    if top is None:
        return _of_floats(sizes, a, b, _plus, _times)
    level = top.level
    of_a, of_b = _has(a, level), _has(b, level)
    if of_a is None or of_b is None:
        return _of_floats(sizes, a, b, add, mul)
    p, q = _primals(a, of_a), _primals(b, of_b)
    values = _of_numbers(sizes, p, q, lambda: _below(again(), of_a, of_b))
    if type(top) is Taped:
        return _on_tape(top.tape, sizes, values, again, (of_a, of_b))
    terms: list[list[Real]] = []
    if of_a:
        terms.append(_plain(sizes, [x.tangent for x in a], q))
    if of_b:
        terms.append(_plain(sizes, p, [x.tangent for x in b]))
    tangents = terms[0] if len(terms) == 1 else [*map(add, *terms)]
    return [*map(Dual, [level] * len(values), values, tangents)]


def _plain(sizes: Sizes, a: Sequence[Real], b: Sequence[Real]) -> list[Real]:
    return _of_numbers(sizes, a, b, lambda: (a, b))


def _has(numbers: Sequence[Real], level: int) -> bool | None:
    """Whether all numbers are of a level, or none; `None` if some are."""
    found = {type(x) is not float and x.level == level for x in numbers}
    return None if len(found) > 1 else found == {True}


def _primals(numbers: Sequence[Real], is_carrying: bool) -> Sequence[Real]:
    return [x.primal for x in numbers] if is_carrying else numbers


def _below(
    factors: tuple[Sequence[Real], Sequence[Real]], of_a: bool, of_b: bool
) -> tuple[Sequence[Real], Sequence[Real]]:
    return _primals(factors[0], of_a), _primals(factors[1], of_b)


def _on_tape(
    tape: Tape,
    sizes: Sizes,
    values: list[Real],
    factors: Factors,
    carrying: tuple[bool, bool],
) -> list[Real]:
    """The values as numbers of a tape, and what propagates their adjoints."""
    first = len(tape.nodes)
    nodes = [tape.input(value) for value in values]

    def propagate() -> None:
        adjoints = [node.adjoint for node in nodes]
        if all(map(is_zero, adjoints)):
            return
        a, b = factors()
        p, q = _primals(a, carrying[0]), _primals(b, carrying[1])
        of_a, of_b = _adjoints(sizes, adjoints, p, q)
        _add_adjoints(a if carrying[0] else (), of_a)
        _add_adjoints(b if carrying[1] else (), of_b)

    tape.calls.append((first, propagate))
    return [*nodes]


def _add_adjoints(numbers: Sequence[Taped], adjoints: list[Real]) -> None:
    for number, adjoint in zip(numbers, adjoints, strict=False):
        number.adjoint = add(number.adjoint, adjoint)


def _adjoints(
    sizes: Sizes, g: Sequence[Real], p: Sequence[Real], q: Sequence[Real]
) -> tuple[list[Real], list[Real]]:
    """The adjoints of factors. An adjoint that is exactly zero is not propagated."""
    rows, inner, columns = sizes.rows, sizes.inner, sizes.columns
    if not any(map(is_zero, g)):
        return (
            _plain(Sizes(rows, columns, inner), g, _transposed(q, inner, columns)),
            _plain(Sizes(inner, rows, columns), _transposed(p, rows, inner), g),
        )
    left: list[Real] = [0.0] * (rows * inner)
    right: list[Real] = [0.0] * (inner * columns)
    for at, adjoint in enumerate(g):
        if is_zero(adjoint):
            continue
        i, j = divmod(at, columns)
        for k in range(inner):
            x, y = i * inner + k, k * columns + j
            left[x] = add(left[x], mul(q[y], adjoint))
            right[y] = add(right[y], mul(p[x], adjoint))
    return left, right


def _transposed(a: Sequence[Real], rows: int, columns: int) -> list[Real]:
    return [a[i * columns + j] for j in range(columns) for i in range(rows)]


def _plus(a: float, b: float) -> float:
    return a + b


def _times(a: float, b: float) -> float:
    return a * b


OnReals = Callable[[Any, Any], Any]


def _of_floats(
    sizes: Sizes, a: Sequence[Real], b: Sequence[Real], plus: OnReals, times: OnReals
) -> list[Real]:
    """Item by item, by the two operators."""
    inner, columns = sizes.inner, sizes.columns
    sum_of = _split_sum if columns == 1 else _sum
    rights = [b[j::columns] for j in range(columns)]
    found: list[Real] = []
    for i in range(sizes.rows):
        row = a[i * inner : (i + 1) * inner]
        found += [sum_of([*map(times, row, right)], plus) for right in rights]
    return found


def _sum(terms: Sequence[Real], plus: OnReals) -> Real:
    total: Real = 0.0
    for term in terms:
        total = plus(total, term)
    return total


def _split_sum(terms: Sequence[Real], plus: OnReals) -> Real:
    sums = [_sum(terms[i::SUMS], plus) for i in range(SUMS)]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [*map(plus, sums[:half], sums[half:])]
    return sums[0]


PRODUCT_BUILTINS: dict[str, Callable[..., Any]] = {
    VECTOR_DOT: vector_dot,
    MATRIX_PRODUCT: matrix_product,
}
"""What each builtin does."""


def unlike(name: str, a: int, b: int) -> str:
    """The message for vectors that differ in length."""
    return f"`{name}` takes vectors of one length, not of {a} and {b}"


def no_product(shape: Value, a: int, b: int) -> str:
    """The message for vectors that are no factors of a product of a shape."""
    return (
        f"`matrix-product`: vectors of {a} and {b} have no product of the shape "
        f"`{show(shape)}`; pass a pair of its rows and its columns, and matrices row "
        "by row"
    )
