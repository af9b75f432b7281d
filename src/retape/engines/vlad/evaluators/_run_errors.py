"""Faults of a running program: what failed, where, and the calls that led there."""

from collections.abc import Iterable
from typing import Any

from retape.engines.vlad.language._diagnostics import RunError, Where
from retape.engines.vlad.values._values import Closure, Mismatch

MAX_CHAIN = 40


class Failed(Exception):
    """A fault, with the continuation in which it happened."""

    def __init__(self, message: str, where: Where, k: Any) -> None:
        self.message = message
        self.where = where
        self.k = k


def run_error(failed: Failed, site: Where | None, waiting: Iterable[Where]) -> RunError:
    """A fault as the user sees it.

    Args:
        failed: The fault.
        site: The last call of a builtin function: a fault inside one is told there.
        waiting: The expressions that wait for a value, the innermost first.
    """
    inside = failed.where.source.name == "builtin"
    return RunError(failed.message, site if inside else failed.where, chain(waiting))


def chain(waiting: Iterable[Where]) -> list[Where]:
    """The places of a chain of calls, each once, without those of builtin functions."""
    found: list[Where] = []
    for where in waiting:
        if where.source.name != "builtin" and (not found or found[-1] != where):
            found.append(where)
        if len(found) == MAX_CHAIN:
            break
    return found


def entering(function: Closure, error: Mismatch) -> str:
    """The message for an argument that a function's parameter does not match."""
    name = function.code.name
    return f"in a call of `{name}`: {error}" if name else f"in a call: {error}"
