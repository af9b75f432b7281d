"""States on disk: killed runs go on, with the same bits; what cannot is refused."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import retape
from retape import PlanError, UnsupportedError, native, vlad

np = pytest.importorskip("numpy")

SCRIPT = Path(__file__).parents[1] / "support" / "killed_vlad.py"
PLAN = retape.fixed_space(snapshots=3, stage=50)
LOOP = """
(define (f x n) (if (zero? n) x (f (sin (+ x n)) (- n 1))))
(checkpoint-*j (lambda (x) (f x 30)) 0.5 1)
(checkpoint-*j (lambda (x) (f x 40)) 0.5 1)
"""


def ran(text: str, **options: Any) -> Any:
    return vlad.run(text, plan=PLAN, **options)


def _start(folder: Path, puts: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, os.fspath(SCRIPT), os.fspath(folder), str(puts)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_run_killed_at_random_points_ends_with_the_same_bits(tmp_path: Path) -> None:
    calm = _start(tmp_path / "calm", -1)
    assert calm.returncode == 0, calm.stderr
    generator = random.Random("compiled")
    kills = 0
    for _ in range(3):
        done = _start(tmp_path / "run", generator.randint(2, 14))
        assert done.returncode in (0, -9), done.stderr
        kills += done.returncode == -9
    final = _start(tmp_path / "run", -1)
    assert final.returncode == 0, final.stderr
    assert kills >= 2
    assert final.stdout == calm.stdout


class Killed(Exception):
    """Stands for the end of a process."""


def test_every_place_to_stop_leads_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retape.storage import _run_directory

    whole = ran(LOOP, report=True)
    write, left = _run_directory.sync_directory, [0]

    def stopping(path: Path) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        write(path)

    monkeypatch.setattr(_run_directory, "sync_directory", stopping)
    resumed = 0
    for stop in range(1, 40, 13):
        left[0] = stop
        store = retape.DiskStore(tmp_path / str(stop), every=0.0)
        done = None
        while done is None:
            try:
                done = ran(LOOP, store=store, report=True)
            except Killed:
                left[0] = 0
        assert done.output == whole.output
        resumed += any(report.resumed for report in done.reports)
    assert resumed >= 2


def test_reading_and_printing_are_repeated_from_the_start(tmp_path: Path) -> None:
    text = """
    (define (f x n)
      (if (zero? n) x (f (* x (write-real (read-real))) (- n 1))))
    (checkpoint-*j (lambda (x) (f x 5)) 1 1)
    """
    for _ in range(2):
        done = ran(text, stdin=[1, 2, 3, 4, 5], store=tmp_path)
        assert done.output == "1\n2\n3\n4\n5\n(120 . 120)\n"


def test_another_program_or_argument_has_a_result_of_its_own(tmp_path: Path) -> None:
    """A run that is done makes room in its folder for the next."""

    for text in (LOOP, LOOP.replace("0.5", "0.6"), LOOP.replace("sin", "cos"), LOOP):
        kept = ran(text, store=tmp_path)
        assert kept.output == ran(text).output


@pytest.mark.parametrize("outer", ["j*", "*j"])
def test_a_run_inside_another_derivative_cannot_be_kept(
    outer: str, tmp_path: Path
) -> None:
    text = LOOP.partition("(check")[0] + (
        f"({outer} (lambda (y) (checkpoint-*j (lambda (x) (f x 30)) y 1)) 1 ONE)"
    ).replace("ONE", "1" if outer == "j*" else "(cons 1 1)")
    with pytest.raises(UnsupportedError, match="cannot be kept on disk: its states"):
        ran(text, store=tmp_path)


def test_a_run_inside_a_kept_one_is_a_step_of_it(tmp_path: Path) -> None:
    text = """
    (define (cdr (cons a b)) b)
    (define (f x n) (if (zero? n) x (f (sin (+ x n)) (- n 1))))
    (define (d x) (cdr (checkpoint-*j (lambda (y) (f y 12)) x 1)))
    (checkpoint-*j (lambda (x) (+ (f x 20) (d (d x)))) 0.5 1)
    """
    kept = ran(text, store=tmp_path)
    assert kept.output == ran(text).output
    assert [path.name for path in tmp_path.iterdir()] == ["run-0001"]


@pytest.mark.parametrize("engine", ["interpreter", "hybrid"])
def test_what_keeps_no_runs_refuses_a_store(engine: Any, tmp_path: Path) -> None:
    advice = f'the {engine} keeps no runs on disk; leave it out, or pass `engine="comp'
    with pytest.raises(UnsupportedError, match=advice):
        ran(LOOP, engine=engine, store=tmp_path)
    f = vlad.compile("(define (f x) (* x x))", engine=engine)["f"]
    with pytest.raises(UnsupportedError, match=advice):
        f.checkpointed_grad(2.0, store=tmp_path)
    assert f.checkpointed_grad(2.0) == 4.0
    square = native.grad(_square, engine=engine)
    with pytest.raises(UnsupportedError, match=advice):
        square(3.0, store=tmp_path)
    assert square(3.0) == 6.0


def _square(x: Any) -> Any:
    return x * x


def test_a_store_in_no_single_directory_is_refused(tmp_path: Path) -> None:
    disk = retape.DiskStore(tmp_path)
    for store in (retape.MemoryStore(), retape.TieredStore(retape.MemoryStore(), disk)):
        with pytest.raises(PlanError, match="pass a directory, or a `DiskStore`"):
            ran(LOOP, store=store)


def test_without_numpy_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(UnsupportedError, match="`pip install numpy`"):
        ran(LOOP, store=tmp_path)


def test_the_command_keeps_states_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from retape.cli import _main

    path = tmp_path / "loop.vlad"
    path.write_text(LOOP)
    command = ["vlad", str(path), "--store", str(tmp_path / "s")]
    outputs = []
    for _ in range(2):
        assert _main.main([*command, "--plan", "segments(stage=50)", "--report"]) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0].out == outputs[1].out
    assert "had done it all" not in outputs[0].err
    assert outputs[1].err.count("had done it all") == 2
    assert _main.main(["vlad", "--store", str(tmp_path)]) == 2
    assert "`--store` keeps the runs of a program" in capsys.readouterr().err
