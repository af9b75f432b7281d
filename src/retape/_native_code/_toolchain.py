"""Compilers of a language, in the order in which they are tried."""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from retape._errors import UnsupportedError

Command: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The compilers of one part of the library, and the alternative to them.

    Attributes:
        language: "C" or "C++".
        variable: The environment variable in which users name a compiler.
        commands: Compilers that are looked for.
        ziglang: The command of the `ziglang` package, or `None` if it cannot serve.
        cache: The folder of its objects in the user's cache.
        user: Who compiles, for errors.
        install: How to get a compiler, for errors.
        instead: What to do without one, for errors.
    """

    language: str
    variable: str
    commands: tuple[str, ...]
    ziglang: str | None
    cache: str
    user: str
    install: str
    instead: str

    def compilers(self) -> Iterator[Command]:
        """The commands of the compilers that are there, the user's own first.

        Raises:
            UnsupportedError: If there is none, when one is asked for.
        """
        found = False
        given = os.environ.get(self.variable, "").strip()
        if given:
            found = True
            yield _split(given)
        for name in self.commands:
            path = shutil.which(name)
            if path is not None:
                found = True
                yield (path,)
        if self.ziglang and importlib.util.find_spec("ziglang") is not None:
            found = True
            yield (sys.executable, "-m", "ziglang", self.ziglang)
        if not found:
            names = [f"${self.variable}", *self.commands]
            listed = ", ".join(f"`{name}`" for name in names[:-1])
            raise UnsupportedError(
                f"{self.user} needs a {self.language} compiler and none was found as "
                f"{listed} or `{names[-1]}`. {self.install}, or {self.instead}."
            )


def _split(command: str) -> Command:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # quotes that are never closed: the whole is a name
        return (command,)
