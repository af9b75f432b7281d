"""From a program's text to an object, and into this process.

The object is the first working compiler's, or from the cache.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from retape._errors import UnsupportedError
from retape._native_code._object_cache import ObjectCache
from retape._native_code._toolchain import Command, Toolchain

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Program:
    """A source file, and all that its object depends on.

    Attributes:
        text: The file's contents.
        suffix: Its suffix, by which compilers know the language.
        flags: What the compiler is told before the file.
        libraries: What it is told after it.
        headers: Folders that are searched for headers; the `*.h` in them count.
        made_for: Versions of what the object is linked to.
        folders: Options that say where that is found. They are no part of what an
            object is kept by, since `made_for` says what is in them: another
            environment with the same packages uses the same object.
        beside: More files of the program with flags of their own, which come after
            the program's. They are compiled at the same time.
        linked: A program that is compiled once for many, kept by itself, and linked
            to each.
    """

    text: str
    suffix: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    headers: tuple[Path, ...] = ()
    made_for: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    beside: tuple[tuple[str, tuple[str, ...]], ...] = ()
    linked: "Program | None" = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Its files."""
        return (self.text, *(text for text, _ in self.beside))


_OBJECTS = (
    b"\x7fELF",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"MZ",
    b"\x64\x86",
)
"""How objects begin: on Linux, macOS (two kinds), and Windows (linked, and not)."""


class _CompilerFailed(Exception):
    """A compiler that cannot be started, or ends with an error."""


def build(tools: Toolchain, program: Program, *, cache: bool = True) -> bytes:
    """Compile a program to a shared object, or find it in the cache.

    A compiler that fails is passed over with a warning, if another one is there.

    Args:
        tools: The compilers that may be used.
        program: What is compiled.
        cache: Whether the object is looked for in the cache, and kept there.

    Returns:
        The object, as it is loaded.

    Raises:
        UnsupportedError: If there is no compiler, or all of them fail.
    """
    objects = ObjectCache(tools)
    failures: list[str] = []
    for compiler in tools.compilers():
        try:
            if cache:
                image = _found_or_made(objects, compiler, program)
            else:
                image = _compile(objects, compiler, program)
        except _CompilerFailed as failure:
            failures.append(f"`{shlex.join(compiler)}` {failure}")
            continue
        _tell(tools, failures, compiler)
        return image
    raise UnsupportedError(
        f"no {tools.language} compiler made an object of the program: "
        f"{'; '.join(failures)}. Set `${tools.variable}` to one that works, or "
        f"{tools.instead}."
    )


def _found_or_made(objects: ObjectCache, compiler: Command, program: Program) -> bytes:
    key = _key(compiler, program)
    image = objects.find(key)
    if image is None:
        image = _compile(objects, compiler, program)
        objects.keep(key, image)
    return image


def _tell(tools: Toolchain, failures: list[str], compiler: Command) -> None:
    if failures:
        warnings.warn(
            f"the {tools.language} compiler {'; '.join(failures)}: "
            f"`{shlex.join(compiler)}` was used instead; set `${tools.variable}` to a "
            "compiler that works, or unset it",
            RuntimeWarning,
            stacklevel=3,
        )


def _key(compiler: Command, program: Program) -> str:
    digest = hashlib.sha256(_digest_of(program.headers))
    parts = (*_named(compiler), *program.flags, *program.libraries, *program.made_for)
    texts = (
        program.text,
        *(part for text, own in program.beside for part in (*own, text)),
    )
    digest.update("\0".join([*parts, *_machine(), *texts]).encode())
    if program.linked is not None:
        digest.update(_key(compiler, program.linked).encode())
    return digest.hexdigest()[:32]


def _named(compiler: Command) -> Command:
    """A compiler by its command, and one that is a Python package by its release.

    A command stays as it is, folders and all: another one may be another compiler.
    """
    if compiler[:3] != (sys.executable, "-m", "ziglang"):
        return compiler
    return (*compiler[1:], metadata.version("ziglang"))


@cache
def _machine() -> tuple[str, ...]:
    """What an object is for: a folder of objects may be shared by several machines."""
    return (platform.machine(), *platform.libc_ver())


@cache
def _digest_of(folders: tuple[Path, ...]) -> bytes:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.h")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _compile(objects: ObjectCache, compiler: Command, program: Program) -> bytes:
    """Run a compiler in a folder of its own, which also has its temporary files."""
    with objects.scratch() as folder, ThreadPoolExecutor() as pool:
        # What is linked is compiled meanwhile, the first time.
        linked = program.linked
        also = linked and pool.submit(_found_or_made, objects, compiler, linked)
        files = _written(folder, program)
        if program.beside:
            own = ((), *(flags for _, flags in program.beside))
            order = _ordered(compiler, program)
            orders = [
                [*order, *flags, "-c", each]
                for flags, each in zip(own, files, strict=True)
            ]
            made = [f"{each}.o" for each in files]
            pairs = zip(orders, made, strict=True)
            jobs = [pool.submit(_made, folder, *pair) for pair in pairs]
            for job in jobs:
                job.result()
            files = made
        if also is not None:
            (folder / "linked.o").write_bytes(also.result())
            files.append(str(folder / "linked.o"))
        command = [*_ordered(compiler, program), *files, *program.libraries]
        return _made(folder, command, str(folder / "program.so"))


def _written(folder: Path, program: Program) -> list[str]:
    """The names of the program's files, which are written."""
    names: list[str] = []
    for number, text in enumerate(program.texts):
        source = folder / f"program{number or ''}{program.suffix}"
        source.write_text(text, encoding="utf-8")
        names.append(str(source))
    return names


def _ordered(compiler: Command, program: Program) -> list[str]:
    headers = [f"-I{each}" for each in program.headers]
    return [*compiler, *program.flags, *program.folders, *headers]


def _made(folder: Path, command: Sequence[str], name: str) -> bytes:
    """The object that a command makes."""
    # In the user's language the words could be in any encoding.
    settings = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    made = Path(name)
    try:
        done = subprocess.run(
            [*command, "-o", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=settings,
            check=False,
        )
    except OSError as error:
        raise _CompilerFailed(f"cannot be run ({error.strerror})") from None
    if done.returncode != 0 or not made.exists():
        words = done.stderr.decode("utf-8", errors="replace").strip()[-2000:]
        raise _CompilerFailed(f"failed ({words or f'status {done.returncode}'})")
    image = made.read_bytes()
    if not image.startswith(_OBJECTS):
        raise _CompilerFailed("failed (it says that it made an object, but did not)")
    return image


def load(tools: Toolchain, image: bytes, open_file: Callable[[str], T]) -> T:
    """Load an object, from a file of its own that is removed at once.

    An object that is loaded twice must not share its state. The file is where files
    may be executed: in the cache, or where temporary ones go.

    Args:
        tools: What it was built with.
        image: The object.
        open_file: What loads a file of this name.

    Returns:
        What `open_file` has returned.

    Raises:
        UnsupportedError: If it cannot be loaded from either place.
    """
    reason = ""
    for folder in (ObjectCache(tools).scratch, tempfile.TemporaryDirectory):
        try:
            with folder() as name:
                path = Path(name) / "program.so"
                path.write_bytes(image)
                return open_file(str(path))
        except (OSError, ImportError, UnsupportedError) as error:
            reason = reason or str(error)
    raise UnsupportedError(
        f"the compiled object cannot be loaded ({reason}); set `$RETAPE_CACHE` to a "
        "folder that can be written and from which programs may be executed, or "
        f"{tools.instead}."
    )
