"""A first hint whether a function is another one: its code, and plain data it reads.

What a run is, is told by what it does (`driver._resume`). That is found out
while it goes on, and where a program differs in steps alone that are not run again, not
at all; so what is easily compared is compared first: bytecode, and the numbers, arrays
and trees of them in defaults, closures, the function's own module and the object of a
method, also of functions that it calls. All else is passed over.
"""

# Anything can be a variable of a function, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from retape._reads import closure_of, globals_of, inside, is_installed, unwrapped
from retape.storage import fingerprint


def hints(name: str, function: object) -> dict[str, str]:
    """Digests of a function's code and of the data that it reads, by what they are of.

    Args:
        name: What the function is called in the call of the user's.
        function: A function, or an object that can be called.

    Examples:
        >>> rate = 0.5
        >>> sorted(hints("step", lambda x, k, by=2: rate * by * x))
        ['`by`, which `step` reads', '`rate`, which `step` reads', 'the code of `step`']
    """
    found, code = dict[str, str](), unwrapped(function)
    if isinstance(code, FunctionType):
        found[f"the code of `{name}`"] = _digest(code.__code__)
    for variable, value in _variables(function):
        # What `partial` binds comes before the default that it takes the place of.
        found.setdefault(f"`{variable}`, which `{name}` reads", _digest(value))
    return {what: digest for what, digest in found.items() if digest}


def _variables(function: object) -> Iterator[tuple[str, Any]]:
    """The variables of a function, with their names."""
    if isinstance(function, partial):
        yield from ((f"argument {i}", arg) for i, arg in enumerate(function.args))
        yield from function.keywords.items()
    elif isinstance(function, MethodType):
        yield "self", function.__self__
    elif isinstance(function, FunctionType):
        takes = inspect.signature(function, follow_wrapped=False).parameters
        for name, parameter in takes.items():
            if parameter.default is not parameter.empty:
                yield name, parameter.default
        yield from closure_of(function).items()
        yield from globals_of(function).items()
    elif inside(function) is None:
        yield "self", function
    if inside(function) is not None:
        yield from _variables(inside(function))


def _digest(value: object) -> str:
    """A digest of a value; nothing if there is nothing in it to compare."""
    found = list[bytes]()
    with suppress(RecursionError):
        _feed(value, found, set())
    return blake2b(b"".join(found), digest_size=8).hexdigest() if found else ""


def _feed(value: Any, found: list[bytes], met: set[int]) -> None:
    """Add digests of what is plain in a value; one that is met again is passed over."""
    if id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, CodeType):
        found.append(value.co_code + repr(value.co_names).encode())
        for constant in value.co_consts:
            _feed(constant, found, met)
    elif isinstance(value, frozenset | set):
        found.append(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, FunctionType | MethodType | partial):
        code: Any = unwrapped(value)
        if not _is_installed(code):
            _feed(getattr(code, "__code__", None), found, met)
        if not _is_installed(value):
            for _, read in _variables(value):
                _feed(read, found, met)
    elif not isinstance(value, ModuleType | type):
        _feed_data(value, found, met)


def _feed_data(value: Any, found: list[bytes], met: set[int]) -> None:
    try:
        found.append(fingerprint(value))
        return
    except Exception:  # noqa: BLE001  # Of whatever kind: it has no digest.
        parts = value
    if isinstance(value, dict):
        parts = [part for key in value for part in (key, value[key])]
    elif not isinstance(value, list | tuple):
        inner = inside(value)
        parts = [inner] if inner is not None else list(_attributes(value).values())
    for part in parts:
        _feed(part, found, met)


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object of the user's own."""
    return {} if _is_installed(type(value)) else getattr(value, "__dict__", {})


def _is_installed(thing: Any) -> bool:
    """Whether something is Python's or a package's, and not the user's own."""
    return is_installed(str(getattr(thing, "__module__", None) or "builtins"))
