"""Products of vectors and matrices, for the interpreter and the hybrid: item by item.

    (vector-dot a b)            the sum of the products of their elements
    (matrix-product s a b)      c = a b, of matrices that lie in vectors row by row;
                                s is the pair of the rows and the columns of c

An item is the sum from left to right; where b has one column it is eight sums, of each
eighth product, which are then added in pairs. `runtime/products.h` does the same, so
that all implementations agree in every bit of a value. Derivatives are those of `+` and
`*` here; compiled code has rules of products, so that each checks the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retape.engines.vlad.operators._table import MATRIX_PRODUCT, VECTOR_DOT
from retape.engines.vlad.values._dual_and_taped import Real, add, is_real, mul, strip
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
    return _product(Sizes(1, len(x), 1), x, y)[0]


def matrix_product(shape: Value, a: Value, b: Value) -> Version:
    """`(matrix-product s a b)`."""
    x, y = elements_of(MATRIX_PRODUCT, a), elements_of(MATRIX_PRODUCT, b)
    sizes = _sizes(shape, len(x), len(y))
    if sizes is None:
        raise Mismatch(no_product(shape, len(x), len(y)))
    return vector(_product(sizes, x, y))


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


def _product(sizes: Sizes, a: Sequence[Real], b: Sequence[Real]) -> list[Real]:
    inner, columns = sizes.inner, sizes.columns
    sum_of = _split_sum if columns == 1 else _sum
    rights = [b[j::columns] for j in range(columns)]
    found: list[Real] = []
    for i in range(sizes.rows):
        row = a[i * inner : (i + 1) * inner]
        found += [sum_of([*map(mul, row, right)]) for right in rights]
    return found


def _sum(terms: Sequence[Real]) -> Real:
    total: Real = 0.0
    for term in terms:
        total = add(total, term)
    return total


def _split_sum(terms: Sequence[Real]) -> Real:
    sums = [_sum(terms[i::SUMS]) for i in range(SUMS)]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [*map(add, sums[:half], sums[half:])]
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
