"""Releases of PyTorch: those said to be tried, and the private parts that are used."""

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retape.engines.eager import TRIED, is_tried, warn_if_untried

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/releases.md"
ENGINE = ROOT / "docs/devdocs/engines.md"
ROW = re.compile(r"^\| (\d+\.\d+\.\d+) \| (3\.\d+) \| (\d[\d,]*) \|", re.MULTILINE)


def section(page: Path, title: str) -> str:
    return page.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def minor(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2])


def test_releases_said_to_be_tried_are_those_of_the_table() -> None:
    rows = ROW.findall(section(PAGE, "PyTorch"))
    assert sorted({minor(release) for release, _, _ in rows}) == [
        minor(each) for each in TRIED
    ]


def test_the_range_that_can_be_installed_is_what_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch, *_) = project["optional-dependencies"]["torch"]
    oldest, newest = minor(TRIED[0]), minor(TRIED[-1])
    assert torch == f"torch>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    pythons = {python for _, python, _ in ROW.findall(section(PAGE, "PyTorch"))}
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert pythons == set(named)


def test_other_releases_warn() -> None:
    assert is_tried(f"{TRIED[-1]}.3+cu130") and not is_tried("2.10.0")
    for release in ("2.1.0", "2.99.0", "3.0.0a0"):
        with pytest.warns(UserWarning, match=f"and not with {release}. It relies on"):
            warn_if_untried(release)


def is_private(name: str) -> bool:
    parts = name.split(".")[1:]
    return any(each.startswith("_") and not each.startswith("__") for each in parts)


def names_in(path: Path) -> Iterator[str]:
    """Names of PyTorch that a module uses, in full."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id == "torch":
            yield ".".join(["torch", *reversed(parts)])


def private_names() -> set[str]:
    """Those that no promise of PyTorch covers; of a name and its parts, the whole."""
    files = (ROOT / "src/retape").rglob("*.py")
    found = {name for path in files for name in names_in(path) if is_private(name)}
    return {
        name for name in found if not any(each.startswith(f"{name}.") for each in found)
    }


def listed() -> list[str]:
    return re.findall(r"`(torch\.[\w.]+)`", section(ENGINE, "Private parts"))


@pytest.mark.slow
def test_private_parts_of_pytorch_are_those_of_the_list() -> None:
    assert sorted(listed()) == sorted(private_names())


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
@pytest.mark.parametrize("name", listed())
def test_a_private_part_is_there(name: str) -> None:
    parts = name.split(".")
    value: Any = importlib.import_module("torch")
    for k, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            importlib.import_module(".".join(parts[:k]))
        value = getattr(value, part)
    assert value is not None
