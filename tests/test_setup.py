"""The repository itself: its commands, its metadata, its notices."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("demo", "test", "bench", "lint", "format", "docs", "clean")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _dry_run(target: str, folder: Path) -> str:
    done = subprocess.run(
        ["make", "--dry-run", target, f"VENV={folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "MAKEFLAGS"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_says_what_it_can_make() -> None:
    shown = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True)
    assert all(f"make {target} " in shown.stdout for target in TARGETS)


@pytest.mark.parametrize("target", ["test", "lint", "docs", "bench"])
def test_torch_is_installed_first_and_at_exactly_one_release(
    target: str, tmp_path: Path
) -> None:
    plan = _dry_run(target, tmp_path / "venv")
    torch, rest = plan.index('"torch==2.13.0"'), plan.index('-e ".[all,dev]"')
    assert plan.index("-m venv") < torch < rest


def test_the_demo_needs_no_torch(tmp_path: Path) -> None:
    assert '"torch' not in _dry_run("demo", tmp_path / "venv")


def test_a_second_call_sets_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/python", ".ready-dev", ".ready-demo"):
        (tmp_path / name).touch()
    assert "pip" not in _dry_run("test", tmp_path)


def test_ranges_have_both_ends(project: dict[str, Any]) -> None:
    for extra in project["project"]["optional-dependencies"].values():
        for requirement in extra:
            open_ended = not requirement.startswith("retape[") and (
                ">=" not in requirement or "<" not in requirement
            )
            assert not open_ended, requirement


def test_the_version_is_the_same_everywhere(project: dict[str, Any]) -> None:
    version = project["project"]["version"]
    assert f'__version__ = "{version}"' in (ROOT / "src/retape/__init__.py").read_text()
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_notice_names_the_paper_and_the_patent() -> None:
    notice = re.sub(r"\s+", " ", (ROOT / "NOTICE").read_text())
    for words in ("Siskind", "Purdue University", "Maynooth University"):
        assert words in notice
    assert "US 11,409,526 B2" in notice


def _ci(folder: Path, make: str) -> subprocess.CompletedProcess[str]:
    """Run the CI script with a `make` that is a line of shell."""
    (folder / ".ci").mkdir()
    (folder / "bin").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "bin" / "make").write_text(f"#!/bin/sh\n{make}\n")
    (folder / "bin" / "make").chmod(0o755)
    (folder / "examples").mkdir()
    (folder / "examples" / "adaptive_grid.py").touch()
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [folder / ".ci" / "run"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )


def test_ci_passes_if_every_step_does(tmp_path: Path) -> None:
    done = _ci(tmp_path, "exit 0")
    assert done.returncode == 0
    for target in ("lint", "test", "docs", "demo"):
        assert f"::: make {target} " in done.stdout


def test_ci_fails_if_one_step_does_and_names_it(tmp_path: Path) -> None:
    done = _ci(tmp_path, '[ "$1" != test ]')
    assert done.returncode == 1
    assert done.stdout.endswith("::: failed: make test\n")
    assert "::: make demo " in done.stdout


def test_this_interpreter_is_new_enough(project: dict[str, Any]) -> None:
    assert project["project"]["requires-python"] == ">=3.11"
    assert sys.version_info >= (3, 11)
