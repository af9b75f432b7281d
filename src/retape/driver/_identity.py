"""Identity of a run: a digest of each part that its result depends on.

A durable store must not hand one program's snapshots to another. A function is known by
its bytecode, its defaults, the variables that it reads (of its closure, its module, its
object, `functools.partial`) and, through them, the functions that it calls. Code of
installed packages counts by name and version, a compiled library by its file. What
cannot be known in this way, such as an open file or a lock, is refused by name: the
caller may say what the run is by a `key` of his own.
"""

# Anything can be a variable of a function, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

from retape._errors import StoreError
from retape.driver._variables_read import (
    contents_of,
    is_installed,
    unwrapped,
    variables_of,
    wrapped_by,
)
from retape.storage import fingerprint
from retape.storage._trees._kinds import opaque
from retape.storage._trees._leaves import is_of_framework

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range)


class Unknown(Exception):
    """A value that has no digest; its text says which one."""


def identify(name: str, function: object) -> dict[str, str]:
    """The digests of a function: of its code, and of each variable that it reads.

    Args:
        name: What the function is called in the call of the user's.
        function: A function, or an object that can be called.

    Raises:
        StoreError: If something that it reads has no digest.
    """
    parts: dict[str, str] = {}
    code = unwrapped(function)
    if isinstance(code, FunctionType):
        parts[f"the code of `{name}`"] = _digest(code.__code__, name)
    for variable, value in variables_of(function):
        # What `partial` binds comes before the default that it takes the place of.
        what = f"`{variable}`, which `{name}` reads"
        parts.setdefault(what, _digest(value, name, variable))
    return parts


def _digest(value: object, name: str, variable: str = "") -> str:
    total = blake2b(digest_size=8)
    try:
        _Feeder(total).feed(value)
    except (Unknown, RecursionError) as error:
        what = f"`{name}` reads `{variable}`, and " if variable else f"`{name}`: "
        raise StoreError(
            f"{what}{error or 'it nests too deeply'}. A store could not tell this run "
            "from another one. Pass `key=`, a text or a number that is another one "
            "whenever the program or its data are, or use a `MemoryStore`."
        ) from None
    return total.hexdigest()


class _Feeder:
    """Feeds values to a digest; a value that is met again is a number."""

    def __init__(self, total: blake2b) -> None:
        self.total = total
        self.met: dict[int, tuple[int, object]] = {}

    def feed(self, value: Any) -> None:
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            self.text(f"{type(value).__name__} {value!r}")
            return
        if id(value) in self.met:
            self.text(f"again {self.met[id(value)][0]}")
            return
        # The object is kept, so that no other one gets its identity meanwhile.
        self.met[id(value)] = len(self.met), value
        self.text(_name_of(type(value)))
        self.feed_object(value)

    def text(self, text: str) -> None:
        self.total.update(f"{len(text)} {text}".encode(errors="surrogatepass"))

    def feed_all(self, values: Any) -> None:
        for value in values:
            self.feed(value)

    def feed_object(self, value: Any) -> None:
        match value:
            case CodeType():
                self.code(value)
            case FunctionType() if not is_installed(value.__module__):
                self.feed(value.__code__)
                for name, read in variables_of(value):
                    self.text(name)
                    self.feed(read)
            case FunctionType():
                self.installed(value.__module__, value.__qualname__)
                if "<locals>" in value.__qualname__:  # What it has bound is the user's.
                    self.feed_all(map(contents_of, value.__closure__ or ()))
            case partial():
                self.feed_all((value.func, value.args, value.keywords))
            case MethodType():
                self.feed_all((value.__func__, value.__self__))
            case ModuleType():
                self.module(value)
            case type():
                self.class_(value)
            case BuiltinFunctionType():
                self.text(f"{value.__module__} {value.__qualname__}")
                if not isinstance(value.__self__, ModuleType | type(None)):
                    self.feed(value.__self__)
            case dict() if all(isinstance(key, str) for key in value):
                self.feed_all(
                    part for key in sorted(value) for part in (key, value[key])
                )
            case dict():
                self.unordered(value.items())
            case set() | frozenset():
                self.unordered(value)
            case tuple() | list():
                self.feed_all(value)
                self.feed_all(sorted(getattr(value, "__dict__", {}).items()))
            case _:
                self.other(value)

    def unordered(self, values: Any) -> None:
        """In the order of their digests: that of a set depends on the process."""
        digests: list[bytes] = []
        for value in values:
            part = blake2b(digest_size=16)
            inner = _Feeder(part)
            inner.met = dict(self.met)
            inner.feed(value)
            digests.append(part.digest())
        for digest in sorted(digests):
            self.total.update(digest)

    def code(self, code: CodeType) -> None:
        self.total.update(code.co_code)
        self.text(f"{code.co_names} {code.co_varnames} {code.co_freevars}")
        self.feed_all(code.co_consts)

    def class_(self, value: type) -> None:
        self.text(_name_of(value))
        if not is_installed(value.__module__):
            self.feed_all(value.__bases__)
            own = {k: v for k, v in vars(value).items() if k not in _OF_ANY_CLASS}
            for name in sorted(own):
                self.text(name)
                self.feed(_plain_member(own[name]))

    def module(self, module: ModuleType) -> None:
        if is_installed(module.__name__):
            self.installed(module.__name__, "")
        else:
            self.file(getattr(module, "__file__", None), module.__name__)

    def installed(self, module: str, name: str) -> None:
        """Code of a package: by its name and the package's version."""
        top = sys.modules.get(module.partition(".")[0])
        self.text(f"{module} {name} {getattr(top, '__version__', '')}")

    def file(self, path: str | None, name: str) -> None:
        try:
            self.total.update(Path(path or "").read_bytes())
        except OSError:
            raise Unknown(f"the file of `{name}` cannot be read") from None

    def other(self, value: Any) -> None:
        """An object of some class: an array, a compiled library, or its attributes."""
        ctypes, numpy = sys.modules.get("ctypes"), sys.modules.get("numpy")
        if ctypes is not None and isinstance(value, ctypes.CDLL):
            self.file(_library(value), value._name)
        elif ctypes is not None and isinstance(value, ctypes._CFuncPtr):  # pyright: ignore
            libraries = [*(getattr(value, "_objects", None) or {}).values()]
            if not any(isinstance(one, ctypes.CDLL) for one in libraries):
                raise Unknown("a C function that is not from a library has no digest")
            self.text(getattr(value, "__name__", ""))
            self.feed_all(one for one in libraries if isinstance(one, ctypes.CDLL))
        elif numpy is not None and isinstance(value, numpy.ufunc):
            self.text(value.__name__)
        elif numpy is not None and isinstance(value, numpy.dtype):
            self.text(str(value))
        elif wrapped_by(value) is not None:
            self.feed(wrapped_by(value))
        elif _is_of_a_package(value):
            self.installed(value.__module__, value.__name__)
        else:
            self.contents(value)

    def contents(self, value: Any) -> None:
        """A state, an array of another framework, or what `copy` would take along."""
        kind = type(value)
        if hasattr(kind, "__array__") or opaque(kind) is not None:
            self.array(value)
            return
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            raise Unknown(
                f"a `{kind.__module__}.{kind.__qualname__}` has no digest"
            ) from None
        if isinstance(reduced, str):
            self.text(reduced)
            return
        make, arguments, *state = reduced
        self.feed_all((make, arguments))
        for part in state:
            # The third and the fourth are iterators over items.
            self.feed(list(part) if hasattr(part, "__next__") else part)
        self.feed(kind)

    def array(self, value: Any) -> None:
        """An array, of NumPy's or of another framework's, or a registered state."""
        numpy: Any = sys.modules.get("numpy")
        own = (numpy.ndarray, numpy.generic) if numpy else ()
        try:
            known = isinstance(value, own) or is_of_framework(value)
            if opaque(type(value)) is None and numpy and not known:
                value = numpy.asarray(value)
            self.total.update(fingerprint(value))
        except (StoreError, TypeError, RuntimeError) as error:
            raise Unknown(f"an array has no digest: {error}") from None


_OF_ANY_CLASS = {
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__firstlineno__",
    "__static_attributes__",
    "__annotations__",
    "__annotate_func__",
    "__annotations_cache__",
    "__abstractmethods__",
    "_abc_impl",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__match_args__",
    "__parameters__",
    "__orig_bases__",
}


def _is_of_a_package(value: Any) -> bool:
    """Whether it is what a package's module has under its name, as `numpy.dot` is."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    found = getattr(sys.modules.get(module), name, None)
    return found is value and is_installed(module)


def _plain_member(value: Any) -> Any:
    """A member of a class: descriptors as the functions in them."""
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget, value.fset
    named = type(value).__module__ == "builtins" and hasattr(value, "__objclass__")
    return value.__name__ if named else value


def _library(library: Any) -> str:
    """The file of a C library, looked up as the loader has."""
    name = library._name
    if Path(name).exists():
        return name
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
    except OSError:
        return name
    return next((path for path in paths if Path(path).name == name), name)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
