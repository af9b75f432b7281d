"""A program: its definitions, and the expressions whose values it prints.

An expression sees the definitions above it, which may refer to one another. A
`Session` takes sources one after the other, as a file or a person at a prompt gives
them, and checks that every name is known before anything runs.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from retape.engines.vlad.language._builtins import BUILTINS
from retape.engines.vlad.language._core import Core, Global, Lambda, walk
from retape.engines.vlad.language._diagnostics import Source, SyntaxFault, TooLong
from retape.engines.vlad.language._expander import Expander
from retape.engines.vlad.language._externals import (
    External,
    NumberedExternal,
    external_lambda,
    number_externals,
)
from retape.engines.vlad.language._reader import Form, Text, read
from retape.engines.vlad.language._syntax_checks import is_form, refuse
from retape.engines.vlad.operators._table import NEGATE


@dataclass(frozen=True, slots=True)
class Program:
    """Definitions by name, and the expressions of a source in their order.

    `roots` names the definitions that are called from outside, and `differentiated`
    says whether derivatives of them are taken there; `externals` are the Python
    functions that the program may call, by number.
    """

    definitions: dict[str, Lambda]
    expressions: tuple[Core, ...]
    roots: tuple[str, ...] = ()
    externals: tuple[NumberedExternal, ...] = ()
    differentiated: bool = False


@dataclass(slots=True)
class Session:
    """The definitions of a prompt so far.

    Attributes:
        redefine: Whether a name may be defined again, as at a prompt.
        externals: The Python functions that the program may call.
        definitions: The functions by name.
    """

    redefine: bool = False
    externals: Mapping[str, External] = field(default_factory=dict)
    definitions: dict[str, Lambda] = field(default_factory=dict)
    _expander: Expander = field(default_factory=Expander)
    _included: set[Path] = field(default_factory=set)
    _used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for number, (name, external) in enumerate(self.externals.items()):
            operands = len(external.partials)
            self.definitions[name] = external_lambda(name, number, operands)

    def add(self, source: Source) -> Program:
        """Read, expand and check a source.

        A source with a fault leaves the session as it was.
        """
        before = dict(self.definitions), set(self._included), set(self._used)
        try:
            with deep_recursion():
                expressions = tuple(self._expressions(source, ()))
                self._check_definitions()
        except BaseException:  # also of a text that is too deep, or of Ctrl-C
            self.definitions, self._included, self._used = before
            raise
        definitions = dict(self.definitions)
        if "-" in definitions:  # of which `(- e)` is then an ordinary call
            definitions[NEGATE] = definitions["-"]
        table = number_externals(self.externals)
        return Program(definitions, expressions, externals=table)

    def _expressions(
        self, source: Source, including: tuple[Path, ...]
    ) -> Iterator[Core]:
        for datum in read(source):
            if is_form(datum, "include"):
                assert isinstance(datum, Form)
                yield from self._include(datum, source, including)
            elif is_form(datum, "define"):
                assert isinstance(datum, Form)
                self._define(datum)
            else:
                core = self._expander.expression(datum)
                self._check(core)
                yield core

    def _include(
        self, form: Form, source: Source, including: tuple[Path, ...]
    ) -> Iterator[Core]:
        path = _included_path(form, source)
        where = form.where
        if path in including or path == _path_of(source):
            raise SyntaxFault(
                f"`{path.name}` includes itself; remove one include", where
            )
        if path in self._included:
            return
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SyntaxFault(
                f"`{path}` cannot be read ({_reason(error)}); correct the path, which "
                "is relative to the including file",
                where,
            ) from None
        self._included.add(path)
        yield from self._expressions(Source(str(path), text), (*including, path))

    def _define(self, form: Form) -> None:
        name, function = self._expander.definition(form)
        earlier = self.definitions.get(name)
        if name in self.externals:
            raise SyntaxFault(
                f"`{name}` is the name of an external function; rename one of them",
                form.where,
            )
        if earlier is not None and not self.redefine:
            raise SyntaxFault(
                f"`{name}` is already defined at {earlier.where}; rename one of them",
                form.where,
            )
        if name in BUILTINS and earlier is None and name in self._used:
            raise SyntaxFault(
                f"`{name}` is defined after an expression that uses the builtin; "
                "define it above that expression",
                form.where,
            )
        self.definitions[name] = function

    def _check(self, core: Core) -> None:
        """Every name that an expression can reach is defined above it."""
        pending, seen = [core], set[str]()
        while pending:
            for reference in _references(pending.pop()):
                if reference.name not in seen:
                    seen.add("-" if reference.name == NEGATE else reference.name)
                    pending.extend(self._known(reference))
        self._used |= seen

    def _check_definitions(self) -> None:
        for function in self.definitions.values():
            for reference in _references(function):
                self._known(reference)

    def _known(self, reference: Global) -> tuple[Core, ...]:
        """The function of a name, to be looked through: none for a builtin."""
        if reference.name == NEGATE:
            reference = Global(reference.where, "-")
        if reference.name in self.definitions:
            return (self.definitions[reference.name],)
        if reference.name not in BUILTINS:
            raise SyntaxFault(
                f"`{reference.name}` is not bound here; define it above, or bind it "
                "with `let`",
                reference.where,
            )
        return ()


def _references(core: Core) -> list[Global]:
    return [node for node in walk(core) if isinstance(node, Global)]


def _included_path(form: Form, source: Source) -> Path:
    """The path of `(include "path")`, relative to the including file.

    `(include "p")` means `p.vlad` where there is no `p`, as in the original.
    """
    match form:
        case Form(items=(_, Text(value=name)), tail=None) if "\0" not in name:
            base = _path_of(source)
            path = ((base.parent if base else Path.cwd()) / name).resolve()
            longer = path.with_name(path.name + ".vlad") if path.name else path
            return longer if longer.is_file() and not path.is_file() else path
    refuse(form, 'write `(include "path")`')


def _path_of(source: Source) -> Path | None:
    path = Path(source.name)
    return path.resolve() if path.is_file() else None


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError):
        return "not UTF-8 text"
    return getattr(error, "strerror", None) or type(error).__name__


@contextmanager
def deep_recursion(limit: int = 100_000) -> Iterator[None]:
    """Let the passes recurse as deep as a program is nested.

    Raises:
        TooLong: If that is deeper than `limit`. More would be at the risk of a crash:
            some passes recurse on the processor's stack, too.
    """
    with _Limit.lock:
        if not _Limit.users:
            _Limit.before = sys.getrecursionlimit()
        _Limit.users += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), limit))
    try:
        yield
    except RecursionError:
        raise TooLong(
            "a function is too long to be compiled: each of its statements stands in "
            "the one before it, and they are some thousands; split it into several "
            "functions, or write a loop",
            None,
        ) from None
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if not _Limit.users:
                sys.setrecursionlimit(_Limit.before)


class _Limit:
    """The interpreter's limit is all threads': the last one to leave restores it."""

    lock = Lock()
    users = 0
    before = 0


def load(path: str | Path) -> Source:
    """Read a program's file."""
    try:
        return Source(str(path), Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SyntaxFault(
            f"`{path}` cannot be read ({_reason(error)}); correct the path", None
        ) from None
