"""Calls of step programs whose parts and options come in one dictionary."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import retape

# pyright: basic
PARTS = {field.name for field in fields(retape.Program)}


def run_program(
    step: Any,
    reverse_step: Any,
    x0: Any,
    *,
    call: Callable[..., Any] = retape.adjoint,
    **options: Any,
) -> Any:
    """`retape.adjoint`, or what is like it, of what belongs to a program and a run."""
    parts = {name: options.pop(name) for name in PARTS & options.keys()}
    return call(retape.Program(step, reverse_step, **parts), x0, **options)
