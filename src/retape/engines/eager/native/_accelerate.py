"""The accelerator: the hot paths of the recorder and the replay, compiled.

It is optional. `accelerate()` compiles it with the system's C++ compiler, once for each
version of PyTorch and of itself, and what was compiled is kept in the user's cache. It
works on the same Python objects as the modules that it stands in for, and hands them
every case that is out of the ordinary.
"""

import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager.loop._calls import Calls
from retape.engines.eager.loop._records import Call, Slot
from retape.engines.eager.trace._geometry import Geometry
from retape.engines.eager.trace._holdings import Buffer, Counter, Holdings
from retape.engines.eager.trace._inputs import Input
from retape.engines.eager.trace._native_handle import _Loaded
from retape.engines.eager.trace._run import Handle, RecomputedValues, Run
from retape.engines.eager.trace._signature import Signature
from retape.engines.eager.trace._step import Snapshot, Step
from retape.engines.eager.trace._tail import Tail
from retape.engines.eager.trace._trace import Trace

SOURCES = Path(__file__).parent
_NAME = "_retape_native"
# The classes whose instances compiled code makes or looks into.
_TYPES = {
    each.__name__: each
    for each in (
        Buffer, Call, Calls, Counter, Input, Geometry, Handle, Holdings, Run,
        Signature, Slot, Snapshot, RecomputedValues, Step, Tail, Trace,
    )
}  # fmt: skip
# No LTO and no `-march`: the work is in the operators, and the cache may be shared.
_FLAGS = "-std=c++20 -O2 -fPIC -shared -fvisibility=hidden".split()


def accelerate(on: bool = True) -> None:
    """Record and replay with compiled code from now on: for small operators.

    The first call on a machine compiles for about half a minute; later ones load what
    was compiled, from `$RETAPE_CACHE` or the user's cache. Results do not change.

    Args:
        on: `False` goes back to Python.

    Raises:
        UnsupportedError: If there is no C++ compiler, or it fails.

    Examples:
        >>> import retape.torch
        >>> retape.torch.accelerate()  # doctest: +SKIP
        >>> retape.torch.accelerate(False)  # Python's recorder, as at first
    """
    if on and _Loaded.module is None:
        _Loaded.module = _load(_build())
        _Loaded.module.setup(_TYPES)
    _Loaded.using = on


def _compiler() -> list[str]:
    given = os.environ.get("CXX")
    if given:
        return shlex.split(given)
    for name in ("g++", "clang++", "c++"):
        path = shutil.which(name)
        if path is not None:
            return [path]
    raise UnsupportedError(
        "`accelerate()` needs a C++ compiler and none was found as `$CXX`, `g++`, "
        "`clang++` or `c++`. Install one, or do without: the Python recorder gives the "
        "same results."
    )


def _command() -> list[str]:
    root = Path(torch.__file__).parent
    include = root / "include"
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    folders = (
        include,
        include / "torch" / "csrc" / "api" / "include",
        sysconfig.get_paths()["include"],
    )
    return [
        *_compiler(),
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        *(f"-I{folder}" for folder in folders),
        f"-L{root / 'lib'}",
    ]


def _cache_folder() -> Path:
    given = os.environ.get("RETAPE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "retape" / "eager"


def _build() -> Path:
    """Compile, or find what was compiled before."""
    command = _command()
    digest = hashlib.sha256("\0".join([sys.version, torch.__version__]).encode())
    digest.update("\0".join(command).encode())
    for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = _cache_folder() / f"{digest.hexdigest()[:32]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _compile(command, target)
    return target


def _compile(command: list[str], target: Path) -> None:
    """Compile beside the target and move it there, so that no half file is seen."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "made.so"
        libraries = ("-ltorch_cpu", "-ltorch_python", "-lc10")
        arguments = [str(SOURCES / "module.cpp"), "-o", str(made), *libraries]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise UnsupportedError(
                f"the C++ compiler `{command[0]}` failed:\n{done.stderr[-2000:]}\n"
                "Set `$CXX` to another one, or do without `accelerate()`: the Python "
                "recorder gives the same results."
            )
        os.replace(made, target)


def _load(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_loader(_NAME, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
