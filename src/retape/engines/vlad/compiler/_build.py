"""C to machine code: the system's compiler, and a cache of what it made."""

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from retape._errors import UnsupportedError

RUNTIME = Path(__file__).parent.parent / "runtime"
FLAGS = (
    "-std=c11 -O2 -fPIC -shared -fvisibility=hidden -ffp-contract=off -fno-math-errno"
).split()


def find_compiler() -> tuple[str, ...]:
    """The command of a C compiler: `$CC`, gcc, clang, cc, or the one of `ziglang`.

    Raises:
        UnsupportedError: If there is none.
    """
    given = os.environ.get("CC")
    if given:
        return tuple(shlex.split(given))
    for name in ("gcc", "clang", "cc"):
        path = shutil.which(name)
        if path is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise UnsupportedError(
        "the compiled engine needs a C compiler and none was found as `$CC`, `gcc`, "
        "`clang` or `cc`. Install one, or `pip install retape[vlad]`, or use "
        '`engine="interpreter"`.'
    )


def cache_folder() -> Path:
    """Where compiled objects are kept: `$RETAPE_CACHE`, or the user's cache."""
    given = os.environ.get("RETAPE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "retape" / "vlad"


@cache
def _runtime_digest() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(RUNTIME.glob("*.h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def build(text: str, extra: Sequence[str] = ()) -> Path:
    """Compile a program's C to a shared object, or find it in the cache.

    Args:
        text: The C file.
        extra: More flags, such as warnings.

    Returns:
        The path of the object.
    """
    command = [*find_compiler(), *FLAGS, *extra]
    digest = hashlib.sha256(_runtime_digest())
    digest.update("\0".join([*command, text]).encode())
    folder = cache_folder()
    target = folder / f"{digest.hexdigest()[:32]}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(command, text, target)
    return target


def _compile(command: list[str], text: str, target: Path) -> None:
    """Compile beside the target and move it there, so that no half file is seen."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source, made = Path(folder) / "program.c", Path(folder) / "program.so"
        source.write_text(text, encoding="utf-8")
        arguments = [f"-I{RUNTIME}", "-o", str(made), str(source), "-lm"]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise UnsupportedError(
                f"the C compiler `{shlex.join(command)}` failed:\n"
                f"{done.stderr[-2000:]}\n"
                'Set `$CC` to another one, or use `engine="interpreter"`.'
            )
        os.replace(made, target)
