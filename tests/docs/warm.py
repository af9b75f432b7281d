"""Examples run in forks of a process that has loaded the frameworks.

Loading them takes longer than most examples, and a fork is as fresh as a new process.
`python -m tests.docs.warm MODULE ...` is that process: it reads a task from each line
of its input, as JSON, and answers each with a line of JSON.
"""

from __future__ import annotations

import doctest
import importlib
import json
import os
import resource
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import FLAGS, ROOT, run_page

CHEAP = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "OMP_NUM_THREADS": "1",
}
"""What a process that runs examples is started with: they are small and run once.

Machine code is made without LLVM's optimisations, which are a third of the time of a
page about JAX (bytes are counted before them), and PyTorch's threads do not wait for
one another, three quarters of the time of a page with small operators.
"""


class Warm:
    """A process that has loaded `modules`, and runs each task in a fork of itself."""

    def __init__(self, *modules: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", __name__, *modules],
            cwd=ROOT,
            env=os.environ | CHEAP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def page(self, page: Path) -> tuple[bool, str, float]:
        """Run a page: whether all was right, what it said, processor seconds."""
        return self._ask("page", str(page), ROOT)

    def docstrings(self, modules: list[str], folder: Path) -> tuple[bool, str, float]:
        """Run the examples of modules' docstrings, each in a folder within this one."""
        return self._ask("docstrings", "", folder, *modules)

    def script(
        self, path: Path, arguments: Iterable[str], folder: Path
    ) -> tuple[bool, str, float]:
        """Run a program in a folder, as `python path ...` would."""
        return self._ask("script", str(path), folder, *arguments)

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, kind: str, *words: str | Path) -> tuple[bool, str, float]:
        assert self._process.stdin and self._process.stdout
        task = json.dumps([kind, *map(str, words)])
        self._process.stdin.write(f"{task}\n")
        self._process.stdin.flush()
        right, said, seconds = json.loads(self._process.stdout.readline())
        return right, said, seconds


# Inside of the process ------------------------------------------------------------


def _serve(modules: list[str]) -> None:
    # As in pyproject.toml: what Lightning calls is deprecated by PyTorch 2.13.
    warnings.filterwarnings("ignore", module=r"lightning\.")
    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        before = _spent()
        with tempfile.TemporaryFile("w+") as out:
            child = os.fork()
            if not child:
                _run_and_leave(json.loads(line), out.fileno())
            _, status = os.waitpid(child, 0)
            out.seek(0)
            said = out.read()
        if status and not said:
            said = f"The process ended with status {status}, without a word."
        print(json.dumps([status == 0, said, _spent() - before]), flush=True)


def _run_and_leave(task: list[str], out: int) -> None:
    """What a fork does: one task, with everything that it says written to `out`."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    kind, target, folder, *arguments = task
    os.chdir(folder)
    status = 1
    try:
        status = 0 if _right(kind, target, arguments) else 1
    except SystemExit as ended:
        status = 0 if ended.code in (None, 0) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _right(kind: str, target: str, arguments: list[str]) -> bool:
    if kind == "page":
        wrong = run_page(Path(target).read_text())
        print("\n".join(wrong))
        return not wrong
    if kind == "docstrings":
        return all([_examples_are_right(Path.cwd(), name) for name in arguments])
    sys.argv = [target, *arguments]
    sys.path[0] = str(Path(target).parent)
    runpy.run_path(target, run_name="__main__")
    return True


def _examples_are_right(folder: Path, name: str) -> bool:
    own = folder / name
    own.mkdir()
    os.chdir(own)
    done = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    return bool(done.attempted) and not done.failed


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    _serve(sys.argv[1:])
