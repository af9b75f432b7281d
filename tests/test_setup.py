"""The repository itself: its commands, its metadata, its workflows."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from retape.cli import main

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = {
    word for line in re.findall(r"^([\w -]+):", MAKEFILE, re.M) for word in line.split()
}


def make(*words: str) -> str:
    # The suite may itself run under make, which would name the folders that it enters.
    made = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
    done = subprocess.run(
        ["make", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in made},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_says_what_it_can_make() -> None:
    named = set(re.findall(r"^make ([\w-]+)", make("-s"), re.M))
    assert {"demo", "test", "lint", "docs", "bench", "format", "clean"} <= named
    assert named <= TARGETS


TORCH_FIRST = ["-m venv", '"torch==2.13.0"', '-e ".[all,dev]"']
PLANS = {
    "test": (TORCH_FIRST, []),
    "lint": (TORCH_FIRST, []),
    "docs": (TORCH_FIRST, []),
    "bench": (TORCH_FIRST, []),
    "demo": (["-m venv", '-e ".[jax,plot]"'], ['"torch']),
    "test-oldest": (['"jax==0.10.2"', "/oldest/bin/python -m pytest"], ['"torch']),
    "test-middle": (['"jax>=0.11,<0.12"', "/middle/bin/python -m pytest"], ['"torch']),
    "test-newest": (['"jax>=0.12,<0.13"', "/newest/bin/python -m pytest"], ['"torch']),
    "test-torch TORCH=2.11.0 TORCH_PYTHON=3.12": (
        [
            "find-python 3.12",
            '"torch==2.11.0"',
            "torch-2.11.0-python-3.12/bin/python -m pytest",
        ],
        ["jax"],
    ),
}


@pytest.mark.parametrize("words", PLANS)
def test_a_target_installs_what_it_needs_in_order_and_no_more(
    words: str, tmp_path: Path
) -> None:
    plan = make("--dry-run", *words.split(), f"VENV={tmp_path / 'venv'}")
    steps, never = PLANS[words]
    places = [plan.index(step) for step in steps]
    assert places == sorted(places)
    assert not any(word in plan.replace(str(tmp_path), "") for word in never)


@pytest.mark.parametrize("target", ["test-torch", "test-newest"])
def test_the_tests_that_a_target_names_are_there(target: str, tmp_path: Path) -> None:
    """Of one that is not, pytest says so and runs none at all."""
    plan = make("--dry-run", target, f"VENV={tmp_path / 'venv'}")
    named = re.findall(r"'(tests/[^']*::[^']*)'", plan)
    assert len(named) > 2
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "--collect-only", *named],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_a_second_call_sets_nothing_up(tmp_path: Path) -> None:
    for name in ("bin/python", ".ready-dev", ".ready-demo", "newest/.ready"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for target in ("test", "test-newest"):
        assert "pip" not in make("--dry-run", target, f"VENV={tmp_path}")


def _fake(path: Path, code: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_a_python_is_found_on_the_path_or_under_pyenv(tmp_path: Path) -> None:
    shims, pyenv = tmp_path / "shims", tmp_path / "pyenv"

    def found() -> tuple[int, str, str]:
        done = subprocess.run(
            [ROOT / ".ci" / "find-python", "3.13", "3.12"],
            capture_output=True,
            text=True,
            env={"PATH": str(shims), "PYENV_ROOT": str(pyenv)},
        )
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    code, none, said = found()
    assert (code, none) == (1, "") and "Install one of them" in said
    # What pyenv puts on the path for a version that is not chosen does not run.
    _fake(shims / "python3.13", 127)
    for place in ("versions/3.12.1/bin/python", "versions/3.13.0/bin/python"):
        assert (0, str(_fake(pyenv / place, 0)), "") == found()
    assert (0, str(_fake(shims / "python3.13", 0)), "") == found()


def test_the_version_and_the_range_of_jax_are_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert f'__version__ = "{version}"' in (ROOT / "src/retape/__init__.py").read_text()
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert PROJECT["optional-dependencies"]["jax"][0] == "jax>=0.10.2,<0.13"


def test_ranges_have_both_ends() -> None:
    for extra in PROJECT["optional-dependencies"].values():
        for requirement in extra:
            ends = ">=" in requirement and "<" in requirement
            assert ends or requirement.startswith("retape["), requirement


@pytest.mark.parametrize("failing", ["none", "test"])
def test_ci_runs_every_step_and_names_the_one_that_fails(
    failing: str, tmp_path: Path
) -> None:
    """The script, with a `make` that is a line of shell."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / ".venv").mkdir()  # so that none is looked for
    _fake(tmp_path / "bin" / "make", 0).write_text(
        f'#!/bin/sh\n[ "$1" != {failing} ]\n'
    )
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env=os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    for target in ("lint", "test", "docs", "release-check", "demo"):
        assert f"::: make {target} " in done.stdout
    assert done.returncode == (failing == "test")
    assert done.stdout.endswith("::: failed: make test\n") == (failing == "test")


def test_workflows_run_targets_that_there_are() -> None:
    called: set[str] = set()
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        text = path.read_text()
        assert all(job["steps"] for job in yaml.safe_load(text)["jobs"].values())
        called |= set(re.findall(r"(?:run: make|target:) ([\w-]+)", text))
    assert {"lint", "test", "docs", "release-check"} <= called <= TARGETS


def test_commands_that_are_run_around_the_tests_are_ours() -> None:
    """Those of the workflows and of the check of a release, which no test runs."""
    scope = runpy.run_path(str(ROOT / ".ci" / "check-release"))
    commands: list[Sequence[str]] = [scope["TRIED"]]
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in re.findall(r"run: retape (.*)", path.read_text()):
            commands.append(shlex.split(line))
    assert len(commands) > 2
    for command in commands:
        assert main(command) == 0, command


def test_links_of_the_readme_are_absolute_on_a_package_index() -> None:
    home, text = PROJECT["urls"]["Repository"], (ROOT / "README.md").read_text()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = pyproject["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert all(link.startswith("https://") for link in links)
    assert {f"{home}/blob/main/LICENSE", f"{home}/blob/main/docs/index.md"} <= {*links}
