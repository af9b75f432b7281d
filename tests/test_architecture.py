"""No arrow points up: read from the sources, with a test that it can say no.

`architecture.toml` lists the arrows that are allowed, between the layers of the library
and between the packages of each engine. The page `docs/devdocs/architecture.md` has
them as tables.
"""

import ast
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.sources import parsed, statements, without_collector

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "retape"
PAGE = ROOT / "docs" / "devdocs" / "architecture.md"
TABLES = tomllib.loads((ROOT / "tests" / "architecture.toml").read_text())

MAY_IMPORT: dict[str, list[str]] = TABLES["layers"]
FRAMEWORKS: dict[str, list[str]] = TABLES["frameworks"]
FOLDERS = {"schedule", "storage", "driver", "plan", "viz", "testing", "cli"}
ENGINES = ("jaxpr", "eager", "vlad")
FACADES = {
    "jax", "native", "nnx", "equinox", "diffrax", "optimistix", "torch", "vlad",
    "transformers", "lightning",
}  # fmt: skip
FRONT = {
    "_adjoint", "_adjoint_arguments", "_diagnose", "_forked",
    "_forward", "interop",
}  # fmt: skip
KNOWN_FRAMEWORKS = {"numpy", "jax", "jaxlib", "torch", "flax", "matplotlib", "scipy"}


def layer_of(module: str) -> str:
    """The layer of a dotted name such as `retape.engines.jaxpr.sweep._machine`."""
    parts = module.split(".")[1:]
    if not parts or parts[0] == "__main__":
        return "root" if not parts else "cli"
    first = parts[0]
    if first == "engines":
        return parts[1] if len(parts) > 1 and parts[1] in ENGINES else "errors"
    if first in FOLDERS:
        return first
    if first in FACADES:
        return f"retape.{first}"
    if first == "_bytes":
        return "bytes"
    if first == "_native_code":
        return "native code"
    return "front" if first in FRONT else "errors"


def module_name(path: Path, sources: Path) -> str:
    parts = ["retape", *path.relative_to(sources).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, sources: Path) -> set[str]:
    """The absolute names of all modules imported anywhere in a file."""
    module = module_name(path, sources)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name for name in names if is_module(name, sources)} or {base}
    return found


def is_module(name: str, sources: Path) -> bool:
    path = sources.joinpath(*name.split(".")[1:])
    ours = name.startswith("retape.")
    return ours and (path.is_dir() or path.with_suffix(".py").exists())


def violations(sources: Path) -> list[str]:
    """Every import that goes up, sideways between engines, or into a framework."""
    found: list[str] = []
    for path in sorted(sources.rglob("*.py")):
        module = module_name(path, sources)
        layer = layer_of(module)
        for name in sorted(imports(path, sources)):
            top = name.split(".")[0]
            if top == "retape":
                target = layer_of(name)
                if target != layer and target not in MAY_IMPORT[layer]:
                    found.append(f"{module} ({layer}) imports {name} ({target})")
            elif top in KNOWN_FRAMEWORKS and layer in FRAMEWORKS:
                if top not in FRAMEWORKS[layer]:
                    found.append(f"{module} ({layer}) imports {top}")
    return found


def test_no_import_goes_up():
    with without_collector():
        assert violations(SOURCES) == []


def test_numpy_is_imported_by_the_stores_and_tables_below_the_engines():
    users = {
        (layer_of(module), module.rpartition(".")[2])
        for path in SOURCES.rglob("*.py")
        if layer_of(module := module_name(path, SOURCES)) in FRAMEWORKS
        and any(name.split(".")[0] == "numpy" for name in imports(path, SOURCES))
    }
    assert {layer for layer, _ in users} == {"storage", "schedule", "driver"}
    tables = sorted(stem for layer, stem in users if layer == "schedule")
    assert tables == ["_chain_table", "_kept_table"]


def test_every_package_and_module_has_a_layer_and_a_docstring():
    for path in SOURCES.rglob("*.py"):
        assert layer_of(module_name(path, SOURCES)) in MAY_IMPORT
        if parsed(path).body:
            assert ast.get_docstring(parsed(path)), path


def package_of(module: str) -> str:
    """The package of a module within its engine, `codegen` for instance.

    A private module beside packages is a package of its own if its name stands in the
    engine's table (`_pipeline`); else it belongs to the engine's `root`.
    """
    engine, *parts = module.split(".")[2:]
    leaf = parts[-1].removeprefix("_") if parts else ""
    public = [part for part in parts if not part.startswith("_")]
    known = ".".join([*public, leaf])
    if parts and parts[-1].startswith("_") and known in TABLES[engine]:
        return known
    return ".".join(public) or "root"


def package_violations(sources: Path, engine: str) -> list[str]:
    """Every import between packages of an engine that its table does not allow."""
    allowed: dict[str, list[str]] = TABLES[engine]
    found: list[str] = []
    for path in sorted((sources / "engines" / engine).rglob("*.py")):
        module = module_name(path, sources)
        package = package_of(module)
        if path.name == "__init__.py":
            continue  # a package's face may gather what it holds
        for name in sorted(imports(path, sources)):
            if not name.startswith(f"retape.engines.{engine}."):
                continue
            target = package_of(name)
            if target != package and target not in allowed.get(package, []):
                found.append(f"{module} ({package}) imports {name} ({target})")
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_no_import_goes_up_between_packages(engine: str) -> None:
    assert package_violations(SOURCES, engine) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_package_stands_in_the_table_and_none_is_too_full(engine: str) -> None:
    rooms: dict[str, int] = {}
    for path in (SOURCES / "engines" / engine).rglob("_*.py"):
        if path.name != "__init__.py":
            package = package_of(module_name(path, SOURCES))
            rooms[package] = rooms.get(package, 0) + 1
    assert set(rooms) <= set(TABLES[engine])
    assert {name: n for name, n in rooms.items() if n > 14} == {}


@pytest.mark.parametrize("table", ["layers", *ENGINES])
def test_the_table_has_no_circle(table: str) -> None:
    """Rows stand in an order in which every arrow points to a row above."""
    above: set[str] = set()
    for name, targets in TABLES[table].items():
        assert set(targets) <= above, f"{name} points down"
        above.add(name)


def test_the_check_of_packages_says_no(tmp_path: Path) -> None:
    folder = tmp_path / "engines" / "jaxpr"
    for package in ("codegen", "sweep"):
        (folder / package).mkdir(parents=True)
    (folder / "sweep" / "_sweep.py").write_text("")
    text = "from retape.engines.jaxpr.sweep._sweep import Sweep"
    (folder / "codegen" / "_a.py").write_text(text)
    (line,) = package_violations(tmp_path, "jaxpr")
    assert "_a (codegen) imports retape.engines.jaxpr.sweep._sweep (sweep)" in line


def definitions(path: Path) -> set[str]:
    """Names that a module defines at its top level."""
    found: set[str] = set()
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def defined_twice(sources: Path, engine: str) -> set[str]:
    """Names with more than one home in an engine."""
    seen: set[str] = set()
    twice: set[str] = set()
    for path in sorted((sources / "engines" / engine).rglob("*.py")):
        names = definitions(path) - {"__all__"}
        twice |= seen & names
        seen |= names
    return twice


@pytest.mark.parametrize("engine", ENGINES)
def test_one_name_has_one_home_in_an_engine(engine: str) -> None:
    assert defined_twice(SOURCES, engine) == set(TABLES["meant_twice"][engine])


def test_a_name_with_two_homes_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "engines" / "jaxpr"
    folder.mkdir(parents=True)
    (folder / "_a.py").write_text("def cut(): ...\nlocal: int = 1")
    (folder / "_b.py").write_text("cut = 3\nother = 2")
    assert defined_twice(tmp_path, "jaxpr") == {"cut"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_page_of_the_architecture_shows_every_package(engine: str) -> None:
    made = runpy.run_path(str(ROOT / ".ci" / "modules.py"))
    assert made["PACKAGES"] in PAGE.read_text() and made["MARK"] in PAGE.read_text()
    rows = [line.split(" | ") for line in made["packages"](engine)[4:] if line]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in TABLES[engine]]
    assert all(row[1].strip() for row in rows), "each package says what it is for"


def test_the_map_has_every_module_after_those_that_it_imports() -> None:
    listed = runpy.run_path(str(ROOT / ".ci" / "modules.py"))
    with without_collector():
        order = [
            path for folder in listed["folders"]() for path in listed["modules"](folder)
        ]
    every = {path for path in SOURCES.rglob("*.py") if path.name != "__init__.py"}
    place = {path: number for number, path in enumerate(order)}
    assert place.keys() == every and len(order) == len(every)
    for path in order:
        # Imports at the top alone: those in functions and for types come later.
        for node in parsed(path).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                target = SOURCES.joinpath(*node.module.split(".")[1:]).with_suffix(
                    ".py"
                )
                if target.parent == path.parent and target in every:
                    assert place[target] < place[path], path


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("schedule/_a.py", "from ..driver import run", "imports retape.driver"),
        ("plan/_a.py", "import numpy as np", "(plan) imports numpy"),
        ("storage/_a.py", "def f():\n    from ..schedule import Store", "retape.sched"),
        ("driver/_a.py", "from ..plan import _base", "imports retape.plan._base"),
        ("engines/jaxpr/_a.py", "from ..eager import x", "imports retape.engines.eag"),
        ("engines/vlad/_a.py", "from retape import viz", "imports retape.viz"),
        ("viz/_a.py", "from ..engines import jaxpr", "imports retape.engines.jaxpr"),
        ("plan/_a.py", "from retape.driver._run import run", "retape.driver._run"),
    ],
)
def test_the_check_says_no(tmp_path, file, text, said):
    for package in ("driver", "schedule", "viz", "plan"):
        (tmp_path / package).mkdir()
    for package in ("engines/jaxpr", "engines/eager"):
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
    (tmp_path / "plan" / "_base.py").write_text("")
    target = tmp_path / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    assert any(said in line for line in violations(tmp_path))
