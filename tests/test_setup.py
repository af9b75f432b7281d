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
import yaml

ROOT = Path(__file__).resolve().parent.parent
TARGETS = (
    "demo", "test", "test-slow", "test-pages", "test-release", "test-matrix",
    "test-torch", "judge", "examples", "bench", "bench-quick", "pictures", "lint",
    "format", "release-check", "docs", "clean",
)  # fmt: skip


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _make(*words: str) -> subprocess.CompletedProcess[str]:
    # The suite may itself run under make, which would name the folders that it enters.
    made = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
    return subprocess.run(
        ["make", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in made},
    )


def _dry_run(target: str, folder: Path) -> str:
    done = _make("--dry-run", target, f"VENV={folder}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_says_what_it_can_make() -> None:
    shown = _make("-s")
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


def test_a_release_of_torch_has_its_own_place_and_python_and_no_jax(
    tmp_path: Path,
) -> None:
    done = _make(
        "-n", "test-torch", f"VENV={tmp_path}", "TORCH=2.11.0", "TORCH_PYTHON=3.12"
    )
    assert done.returncode == 0, done.stderr
    home = f"{tmp_path}/torch-2.11.0-python-3.12"
    assert f"{home}/bin/python -m pytest" in done.stdout
    assert (
        'install --quiet --disable-pip-version-check "torch==2.11.0"\n' in done.stdout
    )
    assert "find-python 3.12" in done.stdout and "jax" not in done.stdout
    assert "[retape.engines.eager.trace._signature]" in done.stdout
    assert "[docs/torch/index.md]" in done.stdout


@pytest.mark.parametrize(
    ("pair", "jax"),
    [
        ("oldest", '"jax==0.10.2"'),
        ("middle", '"jax>=0.11,<0.12"'),
        ("newest", '"jax>=0.12,<0.13"'),
    ],
)
def test_a_pair_has_its_own_python_and_jax_and_no_torch(
    pair: str, jax: str, tmp_path: Path
) -> None:
    plan = _dry_run(f"test-{pair}", tmp_path)
    assert jax in plan and f"{tmp_path}/{pair}/bin/python -m pytest" in plan
    assert '"torch' not in plan
    assert plan in _dry_run("test-matrix", tmp_path)


def test_the_oldest_pair_is_the_end_of_the_range(project: dict[str, Any]) -> None:
    (jax, *_) = project["project"]["optional-dependencies"]["jax"]
    assert jax == "jax>=0.10.2,<0.13"


def _python_found(path: Path, pyenv: Path, *versions: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [ROOT / ".ci" / "find-python", *versions],
        capture_output=True,
        text=True,
        env={"PATH": str(path), "PYENV_ROOT": str(pyenv)},
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def _fake(path: Path, code: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_a_python_is_found_on_the_path_or_under_pyenv(tmp_path: Path) -> None:
    shims, pyenv = tmp_path / "shims", tmp_path / "pyenv"
    # What pyenv puts on the path for a version that is not chosen does not run.
    _fake(shims / "python3.13", 127)
    older = _fake(pyenv / "versions" / "3.12.1" / "bin" / "python", 0)
    assert _python_found(shims, pyenv, "3.13", "3.12") == (0, str(older), "")
    newer = _fake(pyenv / "versions" / "3.13.0" / "bin" / "python", 0)
    assert _python_found(shims, pyenv, "3.13", "3.12") == (0, str(newer), "")
    here = _fake(shims / "python3.13", 0)
    assert _python_found(shims, pyenv, "3.13", "3.12") == (0, str(here), "")


def test_a_python_that_is_missing_is_named(tmp_path: Path) -> None:
    code, found, said = _python_found(tmp_path, tmp_path, "3.13", "3.12")
    assert (code, found) == (1, "")
    assert said == (
        "No Python 3.13 3.12 was found, on PATH or under pyenv. Install one of them "
        "(pyenv install 3.13)."
    )


def test_a_second_call_sets_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "newest").mkdir()
    for name in ("bin/python", ".ready-dev", ".ready-demo", "newest/.ready"):
        (tmp_path / name).touch()
    assert "pip" not in _dry_run("test", tmp_path)
    assert "pip" not in _dry_run("test-newest", tmp_path)


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
    (folder / "bin").mkdir()
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / ".venv").mkdir()  # so that none is looked for
    (folder / "bin" / "make").write_text(f"#!/bin/sh\n{make}\n")
    (folder / "bin" / "make").chmod(0o755)
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
    for target in ("lint", "test", "test-release", "docs", "release-check", "demo"):
        assert f"::: make {target} " in done.stdout


def test_ci_fails_if_one_step_does_and_names_it(tmp_path: Path) -> None:
    done = _ci(tmp_path, '[ "$1" != test ]')
    assert done.returncode == 1
    assert done.stdout.endswith("::: failed: make test\n")
    assert "::: make demo " in done.stdout


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_run_targets_that_there_are():
    called: set[str] = set()
    for path in WORKFLOWS:
        text = path.read_text()
        jobs = yaml.safe_load(text)["jobs"]
        assert all(job["steps"] for job in jobs.values()), path
        called |= set(re.findall(r"run: make ([\w-]+)", text))
        called |= set(re.findall(r"target: ([\w-]+)", text))
    targets = set(re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.M))
    there = {word for line in targets for word in line.split()}
    assert {"lint", "test", "test-newest", "docs", "release-check"} <= called
    assert called <= there


def test_publishing_needs_no_token():
    text = next(p for p in WORKFLOWS if p.stem == "publish").read_text()
    assert "id-token: write" in text
    assert "secrets." not in text and "password" not in text


def test_links_of_the_readme_work_here_and_on_a_package_index(
    project: dict[str, Any],
) -> None:
    """Here they lead to files that are there; what is built has absolute ones."""
    home = project["project"]["urls"]["Repository"]
    text = (ROOT / "README.md").read_text()
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    here = [link for link in found if not link.startswith("https://")]
    assert len(here) >= 5
    assert all((ROOT / link.partition("#")[0]).exists() for link in here)
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert all(link.startswith("https://") for link in links)
    assert {f"{home}/blob/main/LICENSE", f"{home}/blob/main/docs/index.md"} <= {*links}
    assert f"{home}/raw/main/docs/assets/adaptive-grid.svg" in links


def test_this_interpreter_is_new_enough(project: dict[str, Any]) -> None:
    assert project["project"]["requires-python"] == ">=3.11"
    assert sys.version_info >= (3, 11)
