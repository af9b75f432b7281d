"""`retape show`: a JAX function before and after each pass of the compiler."""

import argparse
import ast
import importlib
import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retape._errors import RetapeError
from retape.cli._waiting import waiting

DESCRIPTION = (
    "Show what each pass of the compiler makes of the gradient of a JAX function. The "
    "gradient is taken with respect to the first ARGUMENT."
)

SAME = "(as before)"
"""Stands in the text of `retape.jax.show` for the output of a pass that did nothing."""
_TYPE = re.compile(r"(bf|f|i|u|c)(\d+)\[([\d, ]*)\]|(bool)\[([\d, ]*)\]")
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}


class ShowError(RetapeError, ValueError):
    """The program to be shown cannot be found, or read."""


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "show",
        help="show what the compiler makes of a JAX function",
        description=DESCRIPTION,
        examples=(
            "retape show jax.numpy:sum f32[100,3]",
            "retape show jax.numpy:sin 0.5 --only linearize",
        ),
    )
    parser.add_argument(
        "function",
        metavar="FILE:FUNCTION",
        help="the function, in a Python file or a module",
    )
    parser.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs="+",
        help="the type of an array, such as f32[100,3], or a number",
    )
    parser.add_argument(
        "--only", metavar="PASS", help="show the output of this pass alone"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the passes as an object of JSON"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the program after each pass, or after one."""
    function = _function(options.function)
    arguments = [_argument(text) for text in options.arguments]
    if arguments and type(arguments[0]) is int:
        raise ShowError(
            f"`{arguments[0]}` is a whole number, and the gradient is taken with "
            f"respect to the first argument. Write `{float(arguments[0])}`."
        )

    with waiting("compiling the function"):
        from retape.jax import show

        text = show(function, *arguments)
    parts = _parts(text)
    if options.only is not None and options.only not in parts:
        raise ShowError(
            f"`--only {options.only}` is none of the passes. Pass one of these: "
            f"{', '.join(parts)}."
        )
    if options.json:
        only = options.only
        print(json.dumps(parts if only is None else {only: parts[only]}, indent=2))
    else:
        print(text if options.only is None else parts[options.only])
    return 0


def _parts(text: str) -> dict[str, str]:
    """The output of each pass."""
    parts: dict[str, str] = {}
    last = ""
    for part in text.removeprefix("== ").split("\n== "):
        title, _, body = part.partition("\n")
        # A pass that had nothing to do hands on what it was given.
        last = parts[title] = last if body == SAME else body
    return parts


def _function(where: str) -> Callable[..., Any]:
    """The function that `FILE:FUNCTION` or `module:function` names."""
    file, colon, name = where.rpartition(":")
    if not colon:
        raise ShowError(f"`{where}` names no function: write FILE:FUNCTION.")
    found = _namespace(file).get(name)
    if not callable(found):
        raise ShowError(f"`{file}` defines no function `{name}`.")
    return found


def _namespace(file: str) -> dict[str, Any]:
    if Path(file).is_file():
        # Like `python FILE`: what stands beside it can be imported.
        sys.path.insert(0, str(Path(file).resolve().parent))
        return runpy.run_path(file)
    try:
        return vars(importlib.import_module(file))
    except ImportError as error:
        raise ShowError(
            f"`{file}` is not a file, and cannot be imported as a module: {error}."
        ) from error


def _argument(text: str) -> Any:
    """The type of an array, or a Python literal."""
    found = _TYPE.fullmatch(text)
    if found is None:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            raise ShowError(
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
        raise ShowError(f"`{text}`: there is no element type {dtype}.") from error
