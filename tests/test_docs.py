"""Every example is run: README, documentation, docstrings and the examples folder.

In a page, the Python blocks are one program, run from top to bottom in a fresh
interpreter. What a block prints must be what the `text` block right behind it shows;
a block without one must print nothing. A `pycon` block is a doctest. In a `console`
block each `$ retape ...` is run, and its output compared.

This file is its own runner: `python tests/test_docs.py PAGE`.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = ROOT / "src"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CHEAP = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "OMP_NUM_THREADS": "1",
}
"""What a page's process is started with: its programs are small and run once.

Machine code is made without LLVM's optimisations, which are a third of the time of a
page about JAX (bytes are counted before them), and PyTorch's threads do not wait for
one another, three quarters of the time of a page with small operators.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    follows: bool
    """Whether only blank lines stand between it and the block before it."""


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks, in order."""
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        gap = text[end : match.start()]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[1], match[2], line, not gap.strip()))
        end = match.end()
    return found


def run_page(text: str) -> list[str]:
    """Run a page's examples; returns what went wrong, one text for each."""
    blocks = blocks_of(text)
    names: dict[str, Any] = {"__name__": "__main__"}
    wrong: list[str] = []
    for i, block in enumerate(blocks):
        after = blocks[i + 1] if i + 1 < len(blocks) else None
        shown = after if after and after.language == "text" and after.follows else None
        match block.language:
            case "python":
                got = _run_python(block, names)
                wrong += _compare(block, shown.text if shown else "", got)
            case "pycon":
                wrong += _run_doctest(block, names)
            case "console":
                wrong += _run_console(block)
            case _:
                pass
    return wrong


def _run_python(block: Block, names: dict[str, Any]) -> str:
    # Blank lines in front make the line numbers of a traceback those of the page.
    code = compile("\n" * block.line + block.text, "<page>", "exec")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


def _run_doctest(block: Block, names: dict[str, Any]) -> list[str]:
    test = doctest.DocTestParser().get_doctest(block.text, names, "page", None, 0)
    out = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=out.write, clear_globs=False)
    names.update(test.globs)
    return [f"line {block.line}: {out.getvalue()}"] if out.getvalue() else []


def _run_console(block: Block) -> list[str]:
    wrong: list[str] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command)
        if words[0] != "retape":
            continue
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True
        )
        wrong += _compare(block, shown, done.stdout + done.stderr)
    return wrong


def _compare(block: Block, shown: str, got: str) -> list[str]:
    if doctest.OutputChecker().check_output(shown, got, FLAGS):
        return []
    return [f"line {block.line}: shown\n{shown}\nprinted\n{got}"]


def _modules() -> list[str]:
    """Names of all modules of the package, without importing any."""
    found: list[str] = []
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        if parts[-1] != "__main__":
            found.append(".".join(p for p in parts if p != "__init__"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_page_shows_is_what_its_examples_print(page: Path) -> None:
    if not any(b.language in ("python", "pycon", "console") for b in _blocks(page)):
        assert page.read_text().strip(), "an empty page"
        return
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(page)],
        cwd=ROOT,
        env=os.environ | CHEAP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _blocks(page: Path) -> list[Block]:
    return blocks_of(page.read_text())


@pytest.mark.parametrize("name", _modules())
def test_docstring_examples_print_what_they_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A trainer makes its folder where it is called, be it asked to write nothing.
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=FLAGS)
    assert result.failed == 0, f"{result.failed} of {result.attempted} in {name}"


EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").rglob("*.py"))
    if '__name__ == "__main__"' in path.read_text()
]
SMALL = {
    "adaptive_grid.py": ["--l", "53", "--n", "100", "--plan", "within"],
    "train.py": ["--steps", "3"],
    "run.py": ["run", "--steps", "300", "--cells", "60", "--snapshots", "9", "--quiet"],
    "kill.py": ["--steps", "2000", "--cells", "60", "--memory", "9 kB", "--kills", "1"],
    "hidden_state.py": ["--steps", "30"],
    "fortran_solver.py": ["--steps", "200"],
    "ring_mpi.py": ["--steps", "60", "--cells", "50"],
}
"""Arguments that make an example short."""


def test_every_example_is_found() -> None:
    names = {str(path.relative_to(ROOT / "examples")) for path in EXAMPLES}
    assert {"adaptive_grid.py", "torch/budget.py", "vlad/from_python.py"} <= names
    assert names >= {"decoder/train.py", "shallow_water/kill.py"}
    assert SMALL.keys() <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize(
    "path", EXAMPLES, ids=lambda p: str(p.relative_to(ROOT / "examples"))
)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *SMALL.get(path.name, [])],
        cwd=tmp_path,
        env=os.environ | CHEAP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "an example shows something"


# The checks themselves ----------------------------------------------------------


def _page(python: str, shown: str) -> str:
    return f"Text.\n\n```python\n{python}\n```\n\n```text\n{shown}\n```\n"


def test_the_check_accepts_a_page_that_tells_the_truth() -> None:
    assert run_page(_page("print(1 + 1)", "2")) == []


def test_the_check_finds_a_small_lie() -> None:
    (wrong,) = run_page(_page("print(1.0001)", "1.0002"))
    assert wrong.startswith("line 3: shown\n1.0002")


def test_the_check_finds_output_that_is_not_shown() -> None:
    (wrong,) = run_page("```python\nprint('hidden')\n```\n\nText.\n")
    assert "hidden" in wrong


def test_blocks_of_a_page_share_their_names() -> None:
    assert run_page("```python\na = 2\n```\n" + _page("print(a)", "2")) == []


def test_the_check_finds_a_lie_in_a_doctest() -> None:
    (wrong,) = run_page("```pycon\n>>> 1 + 1\n3\n```\n")
    assert "Expected" in wrong


def test_an_output_behind_some_text_is_not_the_block_s_output() -> None:
    page = "```python\npass\n```\nThis is another thing:\n```text\n5\n```\n"
    assert run_page(page) == []


if __name__ == "__main__":
    # As in pyproject.toml: what Lightning calls is deprecated by PyTorch 2.13.
    warnings.filterwarnings("ignore", module=r"lightning\.")
    problems = run_page(Path(sys.argv[1]).read_text())
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
