"""`retape vlad` as a person meets it: in a poor terminal, and at the keyboard."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.judges.pairwise import dealt

NAMES = "(define (é x) x) é"
COMMAND = [sys.executable, "-m", "retape", "vlad"]


WAYS = ["--engine interpreter", "--engine hybrid", "--emit cps", "prompt"]


@pytest.mark.parametrize(
    ("way", "encoding"), dealt(WAYS, ["ascii", "latin-1", "utf-8"])
)
def test_what_a_terminal_lacks_is_escaped(
    way: str, encoding: str, tmp_path: Path
) -> None:
    program = tmp_path / "named.vlad"
    program.write_text(NAMES, encoding="utf-8")
    at_prompt = way == "prompt"
    done = subprocess.run(
        COMMAND if at_prompt else [*COMMAND, *way.split(), str(program)],
        input=r'(define (f x) x) "é"'.encode() if at_prompt else b"",
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert b"Traceback" not in done.stderr
    if not at_prompt:
        assert done.returncode == 0
        shown = {"ascii": rb"\xe9", "latin-1": "é".encode("latin-1")}
        assert shown.get(encoding, "é".encode()) in done.stdout


def test_a_program_that_reads_says_that_it_waits(tmp_path: Path) -> None:
    program = tmp_path / "reads.vlad"
    program.write_text("(+ (read-real) 1)")
    ours, its = pty.openpty()
    made = subprocess.Popen(
        [*COMMAND, "--engine", "interpreter", str(program)],
        stdin=its,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert made.stderr is not None
    assert b"type them" in made.stderr.readline()
    os.write(ours, b"2.5\n\x04")
    out, err = made.communicate(timeout=60)
    assert (out, err, made.returncode) == (b"3.5\n", b"", 0)
