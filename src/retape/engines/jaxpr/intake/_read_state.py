"""What a function reads besides its arguments, as it is now.

A trace of a function may stand for the next one only if nothing that it read has
changed: what it closes over, the globals that it names, its defaults, and whatever
these hold. JAX leaves that to the user; here it is looked at, as far as it can be told.
What changes by itself (an iterator, a generator of random numbers) cannot.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Generic

import jax
import numpy as np

from retape._reads import closure_of, globals_of, is_installed, names_in

ReadState = tuple[Any, ...]
"""Of two equal ones, a function would be traced to the same."""

_MOST_LOOKED_AT = 4000
"""Objects. A walk through as many takes some 4 ms (two cores), and a trace of a layer
5 to 50."""
_MOST_BYTES = 1 << 16
"""Of an array of NumPy's, which may be changed in place: it is compared as a whole."""

_COMPARED = (
    *(type(None), bool, int, str, bytes, type(...), np.dtype, range, slice),
    *(types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType),
)
_GROUPS = (list, tuple, set, frozenset, deque)
_MAPPINGS = (dict, types.MappingProxyType)
_BUILTIN = (
    *(types.BuiltinFunctionType, types.MethodWrapperType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType),
)
_OF_C = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.BuiltinFunctionType),
)
"""What classes have that are not written in Python."""
_WITHOUT_STATE = (object, Generic)
"""Bases of classes written in Python; `Generic` is in C from Python 3.12 on."""
_OF_WRAPPERS = ("__wrapped__", "fun", "jvp", "fwd", "bwd")
"""As what JAX's callables hold the functions of the user's that they call."""


class MadeAround:
    """Base of callables that are made anew at each call, around a function.

    They are told from one another by that function, and by what else they hold.
    """

    function: Callable[..., Any]


class Untold(Exception):
    """What a function reads cannot be told."""


def state_of(*roots: Any) -> ReadState | None:
    """What functions and objects read and hold now; `None` if that cannot be told."""
    walk = _Walk()
    try:
        for root in roots:
            walk.look(root)
    except (Untold, RecursionError):
        return None
    return tuple(walk.found)


def same_but_counts(before: ReadState, after: ReadState) -> bool:
    """Tell whether nothing but whole numbers has changed.

    Between them the function was traced. A count of its traces is no reason to trace it
    again.
    """
    if len(before) != len(after):
        return False
    pairs = zip(before, after, strict=True)
    return all(a == b or {type(a), type(b)} == {_Number} for a, b in pairs)


class _Number(int):
    """A whole number in a state, told from a size or a truth value."""


class _Same:
    """An object in a state: equal to itself alone, and not kept alive by it."""

    __slots__ = ("get",)

    def __init__(self, value: Any) -> None:
        try:
            self.get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self.get = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self.get()
        return isinstance(other, _Same) and mine is not None and mine is other.get()

    __hash__ = None  # type: ignore[assignment]


class _Walk:
    """Goes through what is read, once through each object."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.seen: dict[Any, tuple[int, Any]] = {}
        """Objects by identity: their numbers, and themselves, to be kept alive."""

    def look(self, value: Any, names: frozenset[str] = frozenset()) -> None:
        """Note a value and what it holds.

        Args:
            value: Anything.
            names: Those that the code speaks of which reads it, for a module.
        """
        if isinstance(value, types.ModuleType):
            self._look_at_module(value, names)
        elif type(value) is int:
            self.found.append(_Number(value))
        elif isinstance(value, (float, complex, np.generic)):
            self.found.append((type(value), np.asarray(value).tobytes()))
        elif isinstance(value, _COMPARED):
            self.found.append((type(value), value))
        elif id(value) in self.seen:
            self.found.append(("again", self.seen[id(value)][0]))
        elif len(self.seen) == _MOST_LOOKED_AT:
            raise Untold
        else:
            self.seen[id(value)] = len(self.seen), value
            self._look_into(value)

    def _look_at_all(
        self, values: Iterable[Any], names: frozenset[str] = frozenset()
    ) -> None:
        for value in values:
            self.look(value, names)

    def _look_into(self, value: Any) -> None:
        match value:
            case jax.Array() | Enum():
                self.found.append(_Same(value))
            case np.ndarray():
                self._look_at_array(value)
            case types.FunctionType():
                self._look_at_function(value)
            case types.MethodType():
                self._look_at_all((value.__func__, value.__self__))
            case functools.partial():
                self._look_at_all((value.func, value.args, value.keywords))
            case staticmethod() | classmethod():
                self.look(value.__func__)
            case property():
                self._look_at_all((value.fget, value.fset))
            case type():
                self._look_at_class(value)
            case _ if isinstance(value, _BUILTIN):
                self._look_at_builtin(value)
            case _:
                self._look_at_object(value)

    def _look_at_array(self, value: np.ndarray) -> None:
        if value.nbytes > _MOST_BYTES or value.dtype.hasobject:
            raise Untold
        self.found.append((value.dtype, value.shape, value.tobytes()))

    def _look_at_function(self, function: Any) -> None:
        self.found.append(_Same(function))
        names, closed = names_in(function.__code__), closure_of(function)
        # One that is set later is another state.
        self.found.append(tuple(closed))
        self._look_at_all(closed.values(), names)
        held = function.__defaults__, function.__kwdefaults__, vars(function)
        self._look_at_all(held, names)
        if not is_installed(function.__module__):
            self._look_at_all(globals_of(function).values(), names)

    def _look_at_module(self, module: Any, names: frozenset[str]) -> None:
        self.found.append(_Same(module))
        for name in sorted(names & vars(module).keys()):
            if (id(module), name) not in self.seen:
                self.seen[id(module), name] = len(self.seen), module
                self.look(vars(module)[name], names)

    def _look_at_class(self, cls: Any) -> None:
        self.found.append(_Same(cls))
        for base in cls.__mro__:
            if is_installed(base.__module__):
                continue
            for name, value in sorted(vars(base).items()):
                data = not callable(value)
                if name != "_abc_impl" and not (data and name.startswith("__")):
                    self.look(value)

    def _look_at_builtin(self, function: Any) -> None:
        self.found.append(_Same(function))
        of = getattr(function, "__self__", None)
        if not isinstance(of, types.ModuleType | type):
            self.look(of)

    def _look_at_object(self, value: Any) -> None:
        cls = type(value)
        self.look(cls)
        if cls is object or _top(cls.__module__) in ("jax", "jaxlib"):
            # JAX's own objects are not changed; functions that they call are.
            self.found.append(_Same(value))
            self._look_at_all(getattr(value, name, None) for name in _OF_WRAPPERS)
            return
        if isinstance(value, _MAPPINGS):
            self.found.append(len(value))
            self._look_at_all(part for item in value.items() for part in item)
        elif isinstance(value, _GROUPS):
            self.found.append(len(value))
            self._look_at_all(value)
        elif not _is_of_python(cls):
            raise Untold
        self._look_at_all(part for item in _attributes_of(value) for part in item)


def _attributes_of(value: Any) -> Iterable[tuple[str, Any]]:
    """What an object holds, by name."""
    slots = {
        name: getattr(value, name)
        for base in type(value).__mro__
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType) and hasattr(value, name)
    }
    return (slots | getattr(value, "__dict__", {})).items()


@functools.lru_cache(1024)
def _is_of_python(cls: type) -> bool:
    """Whether nothing of an object is hidden in C."""
    bases = (b for b in cls.__mro__ if b not in _WITHOUT_STATE)
    members = (v for base in bases for v in vars(base).values())
    return not any(isinstance(v, _OF_C) for v in members)


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]
