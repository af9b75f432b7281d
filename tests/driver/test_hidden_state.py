"""Snapshots that are processes, for codes whose state nobody can copy."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import retape
from retape import PlanError
from tests.programs import run_program

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    place = tmp_path_factory.mktemp("c") / "hidden.so"
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    command = [compiler, "-O2", "-shared", "-fPIC", HERE / "hidden.c", "-o", place]
    subprocess.run([*command, "-lm"], check=True)
    return os.fspath(place)


def command(library, case):
    script = "tests.driver.hidden"
    return [sys.executable, "-W", "error", "-m", script, library, *case.split()]


@pytest.mark.slow("gradients")
@pytest.mark.parametrize(
    "case",
    [
        "gradients",
        "ends costs errors",
        "snapshots_that_die",
        "interrupts",
        "refusals limits",
    ],
)
def test_a_code_with_static_state(library, case):
    done = subprocess.run(
        command(library, case), capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", ["dies", "dies_at_work"])
def test_no_process_outlives_a_caller_that_is_killed(library, case):
    """Each of them holds an end of a pipe: it is at its end when all are gone."""
    read, write = os.pipe()
    caller = subprocess.Popen(
        command(library, case), stdout=subprocess.PIPE, pass_fds=[write], cwd=ROOT
    )
    os.close(write)
    assert caller.stdout is not None and caller.stdout.readline() == b"ready\n"
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"store": retape.MemoryStore()}, "a process that waits cannot be written"),
        ({"verify": "full"}, "hidden states cannot be compared"),
        ({"observe": print}, "`observe=.*: steps are run in other processes"),
        ({"tape": lambda x, k: (x, x)}, "the process of a step has all that its adj"),
        ({"plan": retape.within("1 MB")}, "counts bytes, and neither"),
        (
            {"plan": retape.fixed_space(snapshots=2, store={"state", "tape"})},
            "a `ProcessMachine` cannot hold one",
        ),
    ],
)
def test_what_does_not_go_with_processes_is_named(options, text, monkeypatch):
    monkeypatch.setattr("retape._forked._machine.refuse_threads", lambda: None)
    monkeypatch.setattr("retape._forked._system.fork", lambda: 10**9)
    monkeypatch.setattr("retape._forked._system.is_gone", lambda pid: True)
    monkeypatch.setattr("os.kill", lambda pid, number: None)
    options = {"hidden": True, "steps": 3, "seed": np.copy, **options}
    with pytest.raises(PlanError, match=text):
        run_program(lambda x, k: x, lambda x, k, g: g, None, **options)
