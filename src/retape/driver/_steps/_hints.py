"""A first hint whether a function is another one: its code, and plain data it reads.

What a run is, is told by what it does (`driver._resume`). That is found out
while it goes on, and where a program differs in steps alone that are not run again, not
at all; so what is easily compared is compared first: bytecode, and the numbers, arrays
and trees of them in defaults, closures, the function's own module, the user's other
modules and classes, and the object of a method, also of functions that it calls. All
else is passed over: an object of a package may be a progress bar as well as data.
"""

# Anything can be a variable of a function, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from types import (
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from retape._reads import (
    closure_of,
    globals_of,
    inside,
    is_installed,
    names_in,
    unwrapped,
)
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
    names = frozenset[str]()
    if isinstance(code, FunctionType):
        names = names_in(code.__code__)
        found[f"the code of `{name}`"] = _digest(code.__code__, names)
    for variable, value in _variables(function):
        # What `partial` binds comes before the default that it takes the place of.
        found.setdefault(f"`{variable}`, which `{name}` reads", _digest(value, names))
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


def _digest(value: object, names: frozenset[str]) -> str:
    """A digest of a value; nothing if there is nothing in it to compare.

    Args:
        value: It.
        names: Those in the code of the function that reads it.
    """
    found = _Walk(set(names)).through(value)
    return blake2b(b"".join(found), digest_size=8).hexdigest() if found else ""


@dataclass(slots=True)
class _Walk:
    """A walk through all that a value consists of, in one order in every process.

    Attributes:
        names: All names in the code on the way: what is read of a module is in them.
        digests: Of what is plain.
        met: What is not plain, by its identity: it is passed over when met again.
        modules: The user's own modules on the way, with what has been read of each.
    """

    names: set[str]
    digests: list[bytes] = field(default_factory=list[bytes])
    met: dict[int, Any] = field(default_factory=dict[int, Any])
    modules: list[tuple[ModuleType, set[str]]] = field(
        default_factory=list[tuple[ModuleType, set[str]]]
    )

    def through(self, value: Any) -> list[bytes]:
        """The digests of what is plain in a value."""
        todo = [value]
        while todo or (todo := self._read_of_modules()):
            each = todo.pop()
            try:
                self.digests.append(fingerprint(each))
            except Exception:  # noqa: BLE001  # Of whatever kind: it has no digest.
                if id(each) not in self.met:
                    self.met[id(each)] = each
                    todo += reversed(self._parts(each))
        return self.digests

    def _parts(self, value: Any) -> list[Any]:
        """What something that has no digest of its own consists of."""
        if isinstance(value, CodeType):
            self.digests.append(value.co_code + repr(value.co_names).encode())
            self.names |= names_in(value)
            return [*value.co_consts]
        if isinstance(value, Set):
            self.digests.append(repr(sorted(map(repr, value))).encode())
            return []
        if isinstance(value, FunctionType | MethodType | partial):
            return _of_function(value)
        if isinstance(value, ModuleType):
            if not is_installed(value.__name__):
                self.modules.append((value, set()))
            return []
        if isinstance(value, type):
            return [] if _is_installed(value) else _of_class(value)
        return _of_object(value)

    def _read_of_modules(self) -> list[Any]:
        """What the code on the way reads of the user's own modules, and is not read."""
        found = list[Any]()
        for module, read in self.modules:
            names = (self.names & vars(module).keys()) - read
            read |= names
            found += [vars(module)[name] for name in sorted(names, reverse=True)]
        return found


def _of_function(value: Any) -> list[Any]:
    code: Any = unwrapped(value)
    own = [] if _is_installed(code) else [getattr(code, "__code__", None)]
    read = [] if _is_installed(value) else [each for _, each in _variables(value)]
    return own + read


def _of_class(value: type) -> list[Any]:
    """The functions and the data of a class, and the classes that it extends."""
    found: list[Any] = [*value.__bases__]
    for name, member in vars(value).items():
        code = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(code, FunctionType) or not name.startswith("__"):
            found.append(code)
    return found


def _of_object(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [part for key in value for part in (key, value[key])]
    if isinstance(value, Sequence):
        return [*value]
    inner = inside(value)
    if inner is not None:
        return [inner]
    if isinstance(value, SimpleNamespace | Namespace):
        return [*vars(value).values(), type(value)]
    if _is_installed(type(value)):
        # What `numpy.asarray` takes is data, such as a table of pandas.
        return [np.asarray(value)] if hasattr(value, "__array__") else []
    kept = [getattr(value, "__dict__", {})]
    return [*kept, [*_in_slots(value)], type(value)]


def _in_slots(value: Any) -> Iterator[Any]:
    for kind in type(value).__mro__:
        for member in vars(kind).values():
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):
                    yield member.__get__(value)


def _is_installed(thing: Any) -> bool:
    """Whether something is Python's or a package's, and not the user's own."""
    return is_installed(str(getattr(thing, "__module__", None) or "builtins"))
