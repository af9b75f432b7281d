"""Machine code from text that the library carries or generates: built, cached, loaded.

VLAD's compiler makes C, and the PyTorch engine has an accelerator in C++. Both say what
they need by a `Toolchain`, and the rest is here, once: compilers are tried in turn,
objects are kept by content and trusted only if this user wrote them whole, and a folder
that is read-only or `noexec` is done without where temporary files serve.

    _toolchain      which compilers there are
    _object_cache   what was compiled before
    _build          from text to an object, and into this process
"""

from retape._native_code._build import Program as Program
from retape._native_code._build import build as build
from retape._native_code._build import load as load
from retape._native_code._object_cache import ObjectCache as ObjectCache
from retape._native_code._toolchain import Toolchain as Toolchain
