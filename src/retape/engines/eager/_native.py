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
from typing import Any

import torch

from ._calls import Calls
from ._errors import UnsupportedError
from ._foreign import Foreign
from ._geometry import Geometry
from ._holdings import Buffer, Counter, Holdings
from ._loop_records import Call, Slot
from ._run import Handle, Run, Stage
from ._signature import Signature
from ._step import Snapshot, Step
from ._tail import Tail
from ._trace import Trace

SOURCES = Path(__file__).parent / "native"
_NAME = "_retape_native"
# The classes whose instances compiled code makes or looks into.
_TYPES = {
    each.__name__: each
    for each in (
        Buffer, Call, Calls, Counter, Foreign, Geometry, Handle, Holdings, Run,
        Signature, Slot, Snapshot, Stage, Step, Tail, Trace,
    )
}  # fmt: skip
# No LTO and no `-march`: the work is in the operators, and the cache may be shared.
_FLAGS = "-std=c++20 -O2 -fPIC -shared -fvisibility=hidden".split()


class _Loaded:
    """The compiled module, once there is one; `using` says whether it is to be used."""

    module: Any = None
    using = False


def native() -> Any:
    """The compiled module if it is to be used, else `None`."""
    return _Loaded.module if _Loaded.using else None


def native_for(trace: Any) -> Any:
    """The compiled module if it is to be used and can read what this trace holds.

    It looks into dictionaries directly; snapshots that are away look in at each access.
    """
    return native() if type(trace.held.storages) is dict else None


def accelerate(on: bool = True) -> None:
    """Record and replay with compiled code from now on: for small operators.

    The first call on a machine compiles for about half a minute; later ones load what
    was compiled, from `$RETAPE_CACHE` or the user's cache. Results do not change.

    Args:
        on: `False` goes back to Python.

    Raises:
        UnsupportedError: If there is no C++ compiler, or it fails.
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
    for path in sorted(SOURCES.iterdir()):
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
