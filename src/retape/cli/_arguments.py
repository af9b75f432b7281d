"""Functions and arguments as the command line writes them."""

import argparse
import ast
import importlib
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retape._errors import RetapeError

_TYPE = re.compile(r"(bf|f|i|u|c)(\d+)\[([\d, ]*)\]|(bool)\[([\d, ]*)\]")
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}


class CommandError(RetapeError, ValueError):
    """What a command is to work on cannot be found, or read."""


def add_function(parser: argparse.ArgumentParser, arguments: str) -> None:
    """Add a function and its arguments, as many as `nargs` says."""
    parser.add_argument(
        "function",
        metavar="FILE:FUNCTION",
        help="the function, in a Python file or a module",
    )
    parser.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs=arguments,
        help="the type of an array, such as f32[100,3], or a number",
    )


def function_of(where: str) -> Callable[..., Any]:
    """The function that `FILE:FUNCTION` or `module:function` names."""
    file, _, name = where.rpartition(":")
    if not (file and name):
        raise CommandError(f"`{where}` names no function: write FILE:FUNCTION.")
    found = _namespace(file).get(name)
    if not callable(found):
        raise CommandError(f"`{file}` defines no function `{name}`.")
    return found


def _namespace(file: str) -> dict[str, Any]:
    if Path(file).is_file():
        # Like `python FILE`: what stands beside it can be imported.
        sys.path.insert(0, str(Path(file).resolve().parent))
        return runpy.run_path(file)
    try:
        return vars(importlib.import_module(file))
    except ImportError as error:
        raise CommandError(
            f"`{file}` is not a file, and cannot be imported as a module: {error}."
        ) from error


def argument_of(text: str) -> Any:
    """The type of an array, or a Python literal."""
    found = _TYPE.fullmatch(text)
    if found is None:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            raise CommandError(
                f"`{text}` is neither the type of an array, as in f32[100,3], nor a "
                "Python number."
            ) from error
    import jax

    kind, bits, shape, _, sizes = found.groups()
    dtype = "bool" if kind is None else _KINDS[kind] + bits
    dims = tuple(int(d) for d in (shape if kind else sizes).split(",") if d.strip())
    try:
        return jax.ShapeDtypeStruct(dims, jax.numpy.dtype(dtype))
    except TypeError as error:
        raise CommandError(f"`{text}`: there is no element type {dtype}.") from error
