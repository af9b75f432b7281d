"""The heap of runs 0 to 6 in a budget, planning included, by a counter of its own.

    python -m benchmarks.torch.heap [--budgets 3] [gpt|vit|unet|lstm|mamba|fft ...]

A library that is preloaded (`heap.c`, compiled here) counts what `malloc` gives out:
tensors, PyTorch's graph, Python's objects, tables of C++ code. It knows nothing of
budgets. Before these are counted each program is run plainly, for what is made once.
For budgets from `estimate` (from the error, where that refuses the program) it prints
the peak of each of runs 0 to 6 beyond the heap before it, in MB, with the beginning of
the run, where plans are found; then the most of them without `graph`, and `+` where
that is more than the budget; then what the report says of its bookkeeping. `graph` is
what the plain run has after its forward beyond its tensors: PyTorch's own, which is
there in each run.
"""

import ctypes
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from benchmarks.torch.allocator import ready_gradients
from benchmarks.torch.curves import MODELS, Program, _program, least
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import retape.torch
from retape._errors import UnsupportedError

RUNS = 7
_MARK = "RETAPE_HEAP"


class FFT(nn.Module):
    """Blocks that multiply spectra."""

    def __init__(self, width: int, length: int, layers: int) -> None:
        super().__init__()
        size = (layers, length // 2 + 1, width)
        self.filters = nn.Parameter(torch.randn(size, dtype=torch.cfloat))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for filters, mix in zip(self.filters, self.mix, strict=True):
            seen = torch.fft.irfft(
                torch.fft.rfft(x, dim=1) * filters, n=x.shape[1], dim=1
            )
            x = x + mix(torch.nn.functional.gelu(seen))
        return x


class Cells(nn.Module):
    """An LSTM cell in a loop: thousands of small operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros_like(x[0])
        for each in x:
            h, c = self.cell(each, (h, c))
        return h


def count_heap() -> None:
    """Start this program again under the counter."""
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
    """The counter's numbers."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.live: Callable[[], int] = library.heap_live
        self._peak: Callable[[], int] = library.heap_peak
        self._begin: Callable[[], None] = library.heap_begin
        library.heap_live.restype = library.heap_peak.restype = ctypes.c_long

    def begin(self) -> int:
        """Begin to look for the most bytes at once; those of now."""
        self._begin()
        return self.live()

    def most(self) -> int:
        """The most bytes at once since then."""
        return self._peak()

    def peak(self, job: Callable[[], object]) -> int:
        """The most bytes at once, beyond those before."""
        gc.collect()
        before = self.begin()
        job()
        return self.most() - before


def programs() -> dict[str, Callable[[], Program]]:
    """The models of `curves.py`, a net of Fourier transforms, and a loop of cells."""
    made = {name: lambda make=make: make(full=False) for name, make in MODELS.items()}
    made["fft"] = lambda: _program(FFT(64, 128, 8), torch.randn(8, 128, 64))
    made["cells"] = lambda: _program(Cells(128), torch.randn(100, 16, 128))
    return made


def budgets(program: Program, plain: int, count: int) -> list[int]:
    """Budgets in equal ratios from the least; all of it is left out."""
    try:
        found = retape.torch.estimate(program.loss)
        low, most = found.least, found.enough
    except UnsupportedError:
        low, most = least(program), plain
    return [int(low * (most / low) ** (k / count)) for k in range(count)]


def print_runs(heap: Heap, program: Program, budget: int, graph: int) -> None:
    """The peaks of some runs in a budget."""
    under = retape.torch.recompute(memory=budget)

    def step() -> None:
        with under:
            loss = program.loss()
        loss.backward()

    peaks = [heap.peak(step) for _ in range(RUNS)]
    ours, report = max(peaks) - graph, under.report
    print(f"  {budget / 1e6:7.2f}:", *(f"{each / 1e6:6.2f}" for each in peaks), end="")
    print(f"  {ours / 1e6:6.2f}{'+' if ours > budget else ' '}", end="")
    print(f" {(report.bookkeeping_bytes or 0) / 1e6:6.2f}", end="")
    print(f" {report.steps:5d} operators, {report.recomputed} again", flush=True)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    if "--accelerate" in arguments:
        retape.torch.accelerate()
    count, heap, table = 3, Heap(), programs()
    if "--budgets" in arguments:
        count = int(arguments[arguments.index("--budgets") + 1])
    for name in [each for each in arguments if each in table] or list(table):
        torch.manual_seed(0)
        program = table[name]()
        ready_gradients(program.parameters)
        for _ in range(2):
            program.loss().backward()
        plain = heap.peak(lambda p=program: p.loss().backward())
        graph = own_graph(heap, program.loss)
        print(f"\n{name}: plain {plain / 1e6:.2f} MB, of which graph {graph / 1e6:.2f}")
        for budget in budgets(program, plain, count):
            print_runs(heap, program, budget, graph)


def own_graph(heap: Heap, loss: Callable[[], Tensor]) -> int:
    """What PyTorch's graph takes beside the values that it keeps."""
    gc.collect()
    before = heap.live()
    kept = loss()
    taken = heap.live() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        again = loss()
    events = trace.profiler.kineto_results.events()
    values = sum(each.nbytes() for each in events if each.name() == "[memory]")
    del kept, again
    return taken - values


if __name__ == "__main__":
    if _MARK not in os.environ:
        count_heap()
    main(sys.argv[1:])
