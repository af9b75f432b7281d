"""The names in a line of source: of what an operation reads, and of what it makes.

JAX tells the place of an operation to the column. What stands there is looked up in the
source, where it has names:

    y = jnp.sqrt(x) + 1
        ^^^^^^^^^^^          reads x, makes y
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


class Place(NamedTuple):
    """Where an expression stands; lines from 1, columns (in bytes) from 0."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


def names_read(place: Place) -> tuple[str, ...]:
    """The variables that the expression reads, but for modules and functions called.

    None if the source cannot be read, or has changed since it was run.
    """
    expression = next(_standing_at(place), None)
    if expression is None:
        return ()
    called = {id(n.func) for n in ast.walk(expression) if isinstance(n, ast.Call)}
    names = (
        n.id
        for n in ast.walk(expression)
        if isinstance(n, ast.Name) and id(n) not in called
    )
    known = _imported(_source(place.path))
    return tuple(sorted({name for name in names if name not in known}))


def names_made(place: Place) -> tuple[str, ...]:
    """The variables that the statement around the expression assigns."""
    made: set[str] = set()
    for node in ast.walk(_tree(_source(place.path))):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            end = node.end_lineno or node.lineno
            if node.lineno <= place.line and place.end_line <= end:
                targets = (
                    node.targets if isinstance(node, ast.Assign) else [node.target]
                )
                made = {ast.unparse(t) for target in targets for t in _parts(target)}
    return tuple(sorted(made))


def _standing_at(place: Place) -> Iterator[ast.expr]:
    """The expressions at exactly this place, the outermost first."""
    for node in ast.walk(_tree(_source(place.path))):
        if isinstance(node, ast.expr):
            stands = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
            if stands == place[1:]:
                yield node


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _parts(part)
    else:
        yield target


def _source(path: str) -> str:
    return "".join(linecache.getlines(path))


@lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@lru_cache(maxsize=8)
def _imported(source: str) -> frozenset[str]:
    """Names that stand for modules, or for what was taken from them."""
    kinds = (ast.Import, ast.ImportFrom)
    found = (n for n in ast.walk(_tree(source)) if isinstance(n, kinds))
    aliases = (alias for node in found for alias in node.names)
    return frozenset((a.asname or a.name).split(".")[0] for a in aliases)
