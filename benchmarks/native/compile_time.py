"""`python -m benchmarks.native.compile_time`: seconds of the processor a function.

A program of many small functions, each called once, is compiled without a derivative
and with its gradient: by us in Python and by the C compiler, which are told apart.
`line` is a function of one line, `loop` one of a loop, a branch and two results.
"""

import argparse
import importlib.util
import os
import resource
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.harness import Table

from retape import native

LINE = """
def f{i}(x, y):
    return x * y + {i}.0 * math.sin(x)
"""
LOOP = """
def f{i}(x, y):
    i = 0
    while i < {i} % 5 + 3:
        x = x + {i}.5 / 100.0 * math.sin(y) * x
        i += 1
    if x > {i}.0:
        return x * y
    return x - y / (2.0 + x * x)
"""


def program(shape: str, count: int, folder: Path) -> ModuleType:
    """A module with the functions, and `total`, which calls each once."""
    terms = "".join(f"    s = s + f{i}(x, {i} / 7.0)\n" for i in range(count))
    total = f"\ndef total(x):\n    s = 0.0\n{terms}    return s\n"
    functions = "".join(shape.format(i=i) for i in range(count))
    path = folder / f"many_{len(shape)}_{count}.py"
    path.write_text(f"import math\n{functions}{total}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def processor() -> tuple[float, float]:
    """Seconds of this process, and of those that it started."""
    mine, theirs = map(
        resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return mine.ru_utime + mine.ru_stime, theirs.ru_utime + theirs.ru_stime


def milliseconds(make: Any, shape: str, count: int, folder: Path) -> tuple[float, ...]:
    """Of one function: ours, and the C compiler's."""
    function = make(program(shape, count, folder).total)
    begin = processor()
    function(0.3)
    end = processor()
    return tuple((b - a) / count * 1000 for a, b in zip(begin, end, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, default=[100, 200])
    counts = parser.parse_args().counts
    columns = "functions", "with", "ours ms", "C compiler ms", "ms a function"
    table = Table("function", *columns)
    for name, shape in (("line", LINE), ("loop", LOOP)):
        for count in counts:
            for make in (native.function, native.grad):
                with tempfile.TemporaryDirectory() as folder:
                    os.environ["RETAPE_CACHE"] = folder
                    make(lambda x: x * x)(2.0)  # the runtime is compiled once
                    ours, c = milliseconds(make, shape, count, Path(folder))
                table.row(name, count, make.__name__, ours, c, ours + c)


if __name__ == "__main__":
    main()
