"""The accelerator: the hot paths of the recorder and the replay, compiled.

It is optional. `accelerate()` has it compiled, once for each version of PyTorch and of
itself, by `retape._native_code`. It
works on the same Python objects as the modules that it stands in for, and hands them
every case that is out of the ordinary.
"""

import importlib.machinery
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

from retape import _native_code as native_code
from retape.engines.eager.trace._geometry import Geometry
from retape.engines.eager.trace._holdings import Buffer, Counter, Holdings, Loaded, Tail
from retape.engines.eager.trace._note import Input, Note
from retape.engines.eager.trace._run import (
    ForeignView,
    Handle,
    RecomputedValues,
    Run,
)
from retape.engines.eager.trace._step import Signature, Snapshot, Step
from retape.engines.eager.trace._trace import Trace

SOURCES = Path(__file__).parent
_NAME = "_retape_native"
# The classes whose instances compiled code makes or looks into.
_TYPES = {
    each.__name__: each
    for each in (
        Buffer, Counter, ForeignView, Input, Geometry, Handle, Holdings, Note, Run,
        Signature, Snapshot, RecomputedValues, Step, Tail, Trace,
    )
}  # fmt: skip
# No LTO and no `-march`: the work is in the operators, and the cache may be shared.
_FLAGS = "-std=c++20 -O2 -fPIC -shared -fvisibility=hidden".split()
TOOLS = native_code.Toolchain(
    language="C++",
    variable="CXX",
    commands=("g++", "clang++", "c++"),
    ziglang=None,  # its C++ library is not the one that PyTorch was built with
    cache="eager",
    user="`accelerate()`",
    install="Install one",
    instead="do without: the Python recorder gives the same results",
)


def accelerate(on: bool = True) -> None:
    """Record and replay with compiled code from now on: for small operators.

    The first call on a machine compiles for about half a minute; later ones load what
    was compiled, from `$RETAPE_CACHE` or the user's cache. Results do not change, and
    blocks with `mode="loop"`, which note whole calls, run as before.

    Args:
        on: `False` goes back to Python.

    Raises:
        UnsupportedError: If there is no C++ compiler, or all that are there fail.

    Examples:
        >>> import retape.torch
        >>> retape.torch.accelerate()  # doctest: +SKIP
        >>> retape.torch.accelerate(False)  # Python's recorder, as at first
    """
    if on and Loaded.module is None:
        # Loaded once, and never unloaded.
        Loaded.module = native_code.load(TOOLS, build(), _extension)
        Loaded.module.setup(_TYPES)
    Loaded.using = on


def build() -> bytes:
    """Compile the accelerator, or find what was compiled before.

    Raises:
        UnsupportedError: If there is no compiler, or all of them fail.
    """
    root = Path(torch.__file__).parent
    include = root / "include"
    folders = (
        include,
        include / "torch" / "csrc" / "api" / "include",
        sysconfig.get_paths()["include"],
    )
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    program = native_code.Program(
        (SOURCES / "module.cpp").read_text(encoding="utf-8"),
        ".cpp",
        (*_FLAGS, abi),
        libraries=("-ltorch_cpu", "-ltorch_python", "-lc10"),
        headers=(SOURCES,),
        # A build of one's own may have the number of a release.
        made_for=(
            sys.version,
            str(sysconfig.get_config_var("SOABI")),
            torch.__version__,
            str(torch.version.git_version),
            torch.__config__.show(),
        ),
        folders=(*(f"-I{folder}" for folder in folders), f"-L{root / 'lib'}"),
    )
    return native_code.build(TOOLS, program)


def _extension(path: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
    spec = importlib.util.spec_from_loader(_NAME, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
