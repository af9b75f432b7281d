"""Operators on whole rows: what their reverse takes, and what that means for others.

    c = matrix-product (rows . columns) a b        reverse: dc, and a and b as they were
    s = vector-dot a b                                      ds, and a and b as they were
    c = each:vdv:0 1 2 * + a h b                            dc, and h and b as they were

A row that the reverse takes is kept: to assign an item of it makes another row, once.
So in a program with such operators `vector-set` becomes `own-set`, whose value may be
another row than its operand, and which has both on the tape.
"""

from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Let,
    Lowered,
    Register,
    all_functions,
    letter_of,
    subterms,
)
from retape.engines.vlad.compiler.typed._each_items import each_takes
from retape.engines.vlad.language._each import each_of
from retape.engines.vlad.operators._table import (
    MAKE_VECTOR,
    MATRIX_PRODUCT,
    OWN_SET,
    VECTOR_DOT,
    VECTOR_SET,
)

CELL = "cell"
"""The operator that puts a real before a list."""

PRODUCTS = (VECTOR_DOT, MATRIX_PRODUCT)
SETS = (VECTOR_SET, OWN_SET)
_GIVING_ROWS = (*SETS, MAKE_VECTOR, MATRIX_PRODUCT)


def keeps_rows(module: Lowered) -> bool:
    """Whether the reverse of some operator takes rows as they were."""
    terms = [fun.body for fun in all_functions(module)]
    while terms:
        term = terms.pop()
        if isinstance(term, Let) and _reads_rows(term.op):
            return True
        terms += subterms(term)
    return False


def _reads_rows(op: str) -> bool:
    each = each_of(op)
    if each is None:
        return op in PRODUCTS
    takes = each_takes(op)
    return takes.result or any(i in takes.operands for i in each.vectors)


def is_each(op: str) -> bool:
    """Whether an operator does something with each item of rows."""
    return each_of(op) is not None


def gives_row(step: Let) -> bool:
    """Whether an operator's value is a row, with adjoints whether useful or not."""
    return step.op in _GIVING_ROWS or (step.var.kind == "v" and is_each(step.op))


def gives_another(op: str) -> bool:
    """Whether an operator on rows does not give the same of the same operands."""
    return op in (*_GIVING_ROWS, *PRODUCTS) or is_each(op)


def row_operands(step: Let) -> tuple[Atom, ...]:
    """The operands; where they are a list, without its marks."""
    return tuple(arg for arg in step.args if letter_of(arg) != "m")


def each_atoms(step: Let) -> tuple[Atom, ...]:
    """What the reverse of an operator on each item takes: rows for their adjoints."""
    read = each_takes(step.op).operands
    taken = [
        arg
        for i, arg in enumerate(row_operands(step))
        if letter_of(arg) == "v" or i in read
    ]
    made = (step.var,) if step.var.kind == "v" else ()
    return (*made, *(arg for arg in taken if isinstance(arg, Register)))


def product_takes(step: Let) -> tuple[Atom, ...]:
    """What the reverse of a product takes; the shape is its parts, after a mark."""
    if step.op == VECTOR_DOT:
        return step.args
    _, _, columns, a, b = step.args
    return (step.var, columns, a, b)
