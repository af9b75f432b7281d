"""Operators on whole rows: what their reverse takes, and what that means for others.

    c = matrix-product (rows . columns) a b        reverse: dc, and a and b as they were
    s = vector-dot a b                                      ds, and a and b as they were

A row that the reverse takes is kept: to assign an item of it makes another row, once.
So in a program with such operators `vector-set` becomes `own-set`, whose value may be
another row than its operand, and which has both on the tape.
"""

from retape.engines.vlad.compiler.ir._ir import Let, Module, all_functions
from retape.engines.vlad.compiler.ir._ir import subterms as terms_inside
from retape.engines.vlad.compiler.typed._form import Do, TypedAtom

PRODUCTS = ("vector-dot", "matrix-product")
SETS = ("vector-set", "own-set")
GIVING_ROWS = (*SETS, "make-vector", "matrix-product")
"""Operators whose values are rows, which have adjoints whether useful or not."""


def keeps_rows(module: Module) -> bool:
    """Whether the reverse of some operator takes rows as they were."""
    terms = [fun.body for fun in all_functions(module)]
    while terms:
        term = terms.pop()
        if isinstance(term, Let) and term.op in PRODUCTS:
            return True
        terms += terms_inside(term)
    return False


def product_takes(step: Do) -> tuple[TypedAtom, ...]:
    """What the reverse of a product takes; the shape is its parts, after a mark."""
    if step.op == "vector-dot":
        return step.args
    _, _, columns, a, b = step.args
    return (step.var, columns, a, b)
