"""Public docstrings name the errors that are raised: those that can be read off.

An error counts if it is raised in a function's body, or in that of a function of this
library that the body calls by name. So this finds what is forgotten, and not all of it.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import retape

PACKAGES = (
    "retape",
    "retape.driver",
    "retape.interop",
    "retape.jax",
    "retape.native",
    "retape.schedule",
    "retape.storage",
    "retape.testing",
    "retape.torch",
    "retape.vlad",
)


def public_functions(package: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or vars(module)
    for name in names:
        value = getattr(module, name)
        ours = (getattr(value, "__module__", "") or "").startswith("retape")
        if inspect.isfunction(value) and ours and not name.startswith("_"):
            yield f"{package}.{name}", inspect.unwrap(value)


def raised(function: Callable[..., Any], depth: int = 1) -> set[type]:
    """The errors of this library that a function raises, or one that it calls."""
    scope = function.__globals__
    found: set[type] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise):
            cause = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            kind = scope.get(cause.id) if isinstance(cause, ast.Name) else None
            if isinstance(cause, ast.Attribute):  # `retape.PlanError`
                kind = getattr(retape, cause.attr, None)
            if inspect.isfunction(kind):  # a function that makes the error
                kind = kind.__annotations__.get("return")
                kind = getattr(retape, kind, None) if isinstance(kind, str) else kind
            if inspect.isclass(kind) and issubclass(kind, retape.RetapeError):
                found.add(kind)
        elif depth and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            callee = inspect.unwrap(scope.get(node.func.id, raised))
            if inspect.isfunction(callee) and callee.__module__.startswith("retape"):
                found |= raised(callee, depth - 1)
    return found


def told(function: Callable[..., Any]) -> set[str]:
    """The errors that a docstring lists."""
    doc = inspect.getdoc(function) or ""
    section = re.search(r"^Raises:\n((?:    .*\n?|\n)*)", doc, re.MULTILINE)
    found = (
        re.findall(r"^    (\w+):", section.group(1), re.MULTILINE) if section else ()
    )
    return set(found)


def forgotten(function: Callable[..., Any]) -> set[str]:
    listed = told(function)
    return {
        kind.__name__
        for kind in raised(function)
        if not listed & {base.__name__ for base in kind.__mro__}
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_errors_are_listed(package: str) -> None:
    functions = public_functions(package)
    assert {n: m for n, f in functions if (m := forgotten(f))} == {}


def test_a_forgotten_error_is_found() -> None:
    assert forgotten(retape.fixed_space) == set()
    assert forgotten(_forgets) == {"PlanError"}


def _forgets() -> None:
    """Do something.

    Raises:
        StoreError: If it cannot.
    """
    raise retape.PlanError("never said")
