"""C to machine code: the system's compiler, in front of it a cache of what it made."""

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from retape._errors import UnsupportedError
from retape.engines.vlad.compiler.load import _object_cache as objects

RUNTIME = Path(__file__).parents[2] / "runtime"
FLAGS = (
    "-std=c11 -O2 -fPIC -shared -fvisibility=hidden -ffp-contract=off -fno-math-errno "
    "-fno-tree-slp-vectorize"  # gcc 12: pairs of loop variables cost twice the latency
).split()

Command = tuple[str, ...]


class _CompilerFailed(Exception):
    """A compiler that cannot be started, or ends with an error."""


def find_compilers() -> Iterator[Command]:
    """The commands of C compilers: `$CC`, gcc, clang, cc, and the one of `ziglang`.

    Raises:
        UnsupportedError: If there is none, when one is asked for.
    """
    found = False
    given = os.environ.get("CC", "").strip()
    if given:
        found = True
        yield _split(given)
    for name in ("gcc", "clang", "cc"):
        path = shutil.which(name)
        if path is not None:
            found = True
            yield (path,)
    if importlib.util.find_spec("ziglang") is not None:
        found = True
        yield (sys.executable, "-m", "ziglang", "cc")
    if not found:
        raise UnsupportedError(
            "the compiled engine needs a C compiler and none was found as `$CC`, "
            "`gcc`, `clang` or `cc`. Install one, or `pip install retape[vlad]`, or "
            'use `engine="interpreter"`.'
        )


def _split(command: str) -> Command:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # quotes that are never closed: the whole is a name
        return (command,)


@cache
def _runtime_digest() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(RUNTIME.glob("*.h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def build(text: str, extra: Sequence[str] = ()) -> bytes:
    """Compile a program's C to a shared object, or find it in the cache.

    A compiler that fails is passed over with a warning, if another one is there.

    Args:
        text: The C file.
        extra: More flags, such as warnings.

    Returns:
        The object, as it is loaded.

    Raises:
        UnsupportedError: If there is no compiler, or all of them fail.
    """
    failures: list[str] = []
    for compiler in find_compilers():
        command = [*compiler, *FLAGS, *extra]
        key = _key(command, text)
        image = objects.find(key)
        if image is None:
            try:
                image = _compile(command, text)
            except _CompilerFailed as failure:
                failures.append(f"`{shlex.join(compiler)}` {failure}")
                continue
            objects.keep(key, image)
        _tell(failures, compiler)
        return image
    raise UnsupportedError(
        f"no C compiler made an object of the program: {'; '.join(failures)}. Set "
        '`$CC` to one that works, or use `engine="interpreter"`.'
    )


def _tell(failures: list[str], compiler: Command) -> None:
    if failures:
        warnings.warn(
            f"the C compiler {'; '.join(failures)}: `{shlex.join(compiler)}` was used "
            "instead; set `$CC` to a compiler that works, or unset it",
            RuntimeWarning,
            stacklevel=3,
        )


def _key(command: list[str], text: str) -> str:
    digest = hashlib.sha256(_runtime_digest())
    digest.update("\0".join([*command, text]).encode())
    return digest.hexdigest()[:32]


def _compile(command: list[str], text: str) -> bytes:
    """Run a compiler in a folder of its own, which also has its temporary files."""
    with objects.scratch() as folder:
        source, made = folder / "program.c", folder / "program.so"
        source.write_text(text, encoding="utf-8")
        arguments = [f"-I{RUNTIME}", "-o", str(made), str(source), "-lm"]
        settings = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
        try:
            done = subprocess.run(
                [*command, *arguments], capture_output=True, check=False, env=settings
            )
        except OSError as error:
            raise _CompilerFailed(f"cannot be run ({error.strerror})") from None
        if done.returncode != 0 or not made.exists():
            said = done.stderr.decode("utf-8", errors="replace").strip()[-2000:]
            raise _CompilerFailed(f"failed ({said or f'status {done.returncode}'})")
        return made.read_bytes()
