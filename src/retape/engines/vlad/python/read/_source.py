"""A Python function's text: found, parsed, with places for messages."""

import __future__

import ast
import builtins
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

from retape._reads import codes_in
from retape.engines.vlad.language._diagnostics import Source, VladError, Where

FunctionNode = ast.FunctionDef | ast.Lambda
MISSING = object()
"""What a name that is bound nowhere stands for."""


class CompileError(VladError):
    """A Python function with something in it that is not compiled."""


@dataclass(frozen=True, eq=False)
class PythonFile:
    """A Python file, from which functions are compiled."""

    source: Source
    tree: ast.Module = field(repr=False)

    @cached_property
    def functions(self) -> dict[int, list[FunctionNode]]:
        """The definitions by the lines that a code object may give as its first.

        A walk through the whole file for each function took half of our own time with
        100 functions in it.
        """
        found: dict[int, list[FunctionNode]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, FunctionNode):
                for line in _first_lines(node):
                    found.setdefault(line, []).append(node)
        return found

    def where(self, node: ast.AST) -> Where:
        """The place of a node."""
        line = getattr(node, "lineno", 1)
        start = self.source.line_starts[line - 1]
        text = self.source.text[start:].split("\n", 1)[0]
        column = len(text.encode()[: getattr(node, "col_offset", 0)].decode())
        return Where(self.source, start + column)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Refuse a node: the message comes with its place, line and caret."""
        raise CompileError(message, self.where(node))


@dataclass(frozen=True, eq=False)
class CalledFile(PythonFile):
    """A file of our library, whose every place is that of one call of the user's."""

    place: Where

    def where(self, node: ast.AST) -> Where:
        return self.place


@dataclass(frozen=True, eq=False)
class Parsed:
    """A function's definition, and what its names stand for outside of it.

    Attributes:
        text: The file.
        node: The definition.
        lookup: The value of a name that no compiled function binds, or `MISSING`.
        enclosing: The variables of the functions around this one.
    """

    text: PythonFile
    node: FunctionNode
    name: str
    lookup: Callable[[str], Any]
    enclosing: frozenset[str] = frozenset()


def parse_function(function: FunctionType) -> Parsed:
    """The definition of a plain Python function.

    Raises:
        CompileError: If its text cannot be had.
    """
    code, text = function.__code__, _text_of(function)
    if code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
        text.refuse(
            ast.Pass(lineno=code.co_firstlineno),
            f"`{function.__qualname__}` is a generator or a coroutine, which is not "
            "compiled; write a function that returns a value",
        )
    there = text.functions.get(code.co_firstlineno, [])
    found = [node for node in there if _is_node_of(node, code)]
    if len(found) != 1:
        raise CompileError(_not_found(function, len(found)), None)
    if is_changed(function, text.source.text):
        raise CompileError(_not_found(function, 0), None)
    (node,) = found
    assert isinstance(node, FunctionNode)
    name = "lambda" if isinstance(node, ast.Lambda) else function.__name__
    return Parsed(text, node, name, _lookup(function))


def _not_found(function: FunctionType, count: int) -> str:
    code = function.__code__
    place = f"line {code.co_firstlineno} of `{code.co_filename}`"
    if count:
        return (
            f"{count} functions that look like `{function.__qualname__}` stand at "
            f"{place}; write each in a line of its own"
        )
    return (
        f"the text of `{function.__qualname__}` is not found at {place}; compile "
        "functions from files that have not changed since they were imported"
    )


def _first_lines(node: FunctionNode) -> set[int]:
    if isinstance(node, ast.Lambda):
        return {node.lineno}
    return {node.lineno, *(each.lineno for each in node.decorator_list)}


def _is_node_of(node: FunctionNode, code: CodeType) -> bool:
    """Tell whether a definition at a code object's first line is its own."""
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    count = code.co_argcount + code.co_kwonlyargcount
    if tuple(each.arg for each in given) != code.co_varnames[:count]:
        return False
    if isinstance(node, ast.FunctionDef):
        return node.name == code.co_name
    if code.co_name != "<lambda>":
        return False
    positions = getattr(code, "co_positions", None)  # of Python 3.11 and later
    return positions is None or not _places_of(node.body).isdisjoint(positions())


def _places_of(node: ast.expr) -> set[tuple[int | None, ...]]:
    """Where a value is made; Python may name no place of a whole `a if c else b`."""
    place = node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
    if isinstance(node, ast.IfExp):
        return {place} | _places_of(node.body) | _places_of(node.orelse)
    return {place}


def _text_of(function: FunctionType) -> PythonFile:
    path = inspect.getsourcefile(function)
    try:
        lines, _ = inspect.findsource(function)
    except (OSError, TypeError):
        raise CompileError(
            f"the text of `{function.__qualname__}` cannot be read, since it is in no "
            "file; write it in one, and import it",
            None,
        ) from None
    return _parsed(path or function.__code__.co_filename, "".join(lines))


@cache
def _parsed(path: str, text: str) -> PythonFile:
    return PythonFile(Source(_shown(path), text), ast.parse(text))


def _shown(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _lookup(function: FunctionType) -> Callable[[str], Any]:
    names = function.__code__.co_freevars

    def lookup(name: str) -> Any:
        if name in names:
            assert function.__closure__ is not None
            cell = function.__closure__[names.index(name)]
            try:
                return cell.cell_contents
            except ValueError:  # bound later
                return MISSING
        found = function.__globals__.get(name, MISSING)
        return getattr(builtins, name, MISSING) if found is MISSING else found

    return lookup


_CLOCK_TICK = 2.0
_BEGIN = time.time() - _CLOCK_TICK
_FUTURE = sum(
    getattr(__future__, name).compiler_flag for name in __future__.all_feature_names
)


def is_changed(function: FunctionType, text: str) -> bool:
    """Tell whether a text is another one than a function was made of.

    A file that is older than this process was read as it is. (Tools that change the
    code of what they import, as pytest does, would not be told from a change.)
    """
    code = function.__code__
    try:
        if os.stat(code.co_filename).st_mtime < _BEGIN:
            return False
    except OSError:  # the cell of a notebook
        pass
    try:
        codes = _codes_of(text, code.co_filename, code.co_flags & _FUTURE)
    except SyntaxError:  # `await` in a cell
        return False
    return _shape(code) not in codes


@cache
def _codes_of(text: str, path: str, flags: int) -> frozenset[object]:
    module = compile(text, path, "exec", flags, dont_inherit=True)
    return frozenset(_shape(each) for each in codes_in(module))


def _shape(code: CodeType) -> object:
    """All that a code object does, and its first line."""
    constants = tuple(
        _shape(each) if isinstance(each, CodeType) else repr(each)
        for each in code.co_consts
    )
    variables = code.co_names, code.co_varnames, code.co_freevars
    return code.co_name, code.co_firstlineno, code.co_code, variables, constants
