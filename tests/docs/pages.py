"""What a page shows is what its examples print.

In a page, the Python blocks are one program, run from top to bottom in a fresh
interpreter. What a block prints must be what the `text` block right behind it shows;
a block without one must print nothing. A `pycon` block is a doctest. In a `console`
block each `$ retape ...` is run, and its output compared.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RUN = ("python", "pycon", "console")
"""The languages of blocks that are run."""


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
