"""The most bytes at once, by counters that know nothing of budgets.

On a CPU a library that is preloaded (`heap.c`, compiled here) counts what `malloc`
gives out: tensors, PyTorch's graph, Python's objects, tables of C++ code. On a GPU its
caching allocator counts.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from benchmarks.torch.allocator import ON_CUDA, allocated, peak_bytes
from torch import Tensor

_MARK = "RETAPE_HEAP"


def start_under_the_counter() -> None:
    """Start this program again with the library loaded, if that has to be."""
    if ON_CUDA or _MARK in os.environ:
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "heap.so"
        source = Path(__file__).with_name("heap.c")
        command = ["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        counted = {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc", _MARK: "1"}
        code = subprocess.run(
            [sys.executable, *sys.orig_argv[1:]], env={**os.environ, **counted}
        )
        sys.exit(code.returncode)


class Heap:
    """The library's numbers."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.heap_live.restype = ctypes.c_long
        self._library.heap_peak.restype = ctypes.c_long

    def peak(self, job: Callable[[], object]) -> int:
        """The most bytes at once, beyond those before."""
        gc.collect()
        self._library.heap_begin()
        before = self._library.heap_live()
        job()
        return self._library.heap_peak() - before

    def graph(self, loss: Callable[[], Tensor]) -> int:
        """What PyTorch's graph takes beside the values that it keeps."""
        gc.collect()
        before = self._library.heap_live()
        kept = loss()
        taken = self._library.heap_live() - before
        values, again = allocated(loss)
        del kept, again
        return taken - values


class CachingAllocator:
    """A GPU's numbers, in which the graph is not."""

    def peak(self, job: Callable[[], object]) -> int:
        """The most bytes at once, beyond those before."""
        return peak_bytes(job)

    def graph(self, loss: Callable[[], Tensor]) -> int:
        """Nothing."""
        return 0


def counter() -> Heap | CachingAllocator:
    """That of this machine."""
    return CachingAllocator() if ON_CUDA else Heap()


def stay_reproducible() -> None:
    """One thread; on a GPU no sums by atomic operations: each time others."""
    torch.set_num_threads(1)
    if ON_CUDA:
        torch.use_deterministic_algorithms(True, warn_only=True)
