"""Modules as syntax trees, for the tests that read all of them."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@contextmanager
def without_collector() -> Iterator[None]:
    """Trees are made without looking for garbage, which takes most of the time.

    702 modules took 3.4 processor seconds with the collector and 1.4 without. Where
    it is back after each module it catches up: to look at all imports took 7.0 seconds
    on a busy machine, and 3.5 within one block.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parsed_text(source: str) -> ast.Module:
    with without_collector():
        return ast.parse(source)


@cache
def parsed(path: Path) -> ast.Module:
    """A module, read once: several tests look at every module."""
    return parsed_text(path.read_text("utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements of a program, without their expressions, which are many more."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)
