"""No arrow points up: read from the sources, with a test that it can say no."""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "retape"

# A module may import modules of the layers on its right, and of its own layer.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "schedule": {"errors", "bytes"},
    "storage": {"errors", "bytes"},
    "bytes": {"errors"},
    "driver": {"schedule", "storage", "errors", "bytes"},
    "plan": {"schedule", "errors", "bytes"},
    "front": {"driver", "plan", "storage", "schedule", "errors", "bytes"},
    "jaxpr": {"driver", "plan", "storage", "schedule", "errors", "bytes"},
    "eager": {"driver", "plan", "storage", "schedule", "errors", "bytes"},
    "vlad": {"driver", "plan", "storage", "schedule", "errors", "bytes"},
    "viz": {"schedule", "driver", "errors", "bytes"},
    "root": {"front", "plan", "driver", "storage", "schedule", "errors"},
    "retape.jax": {"jaxpr", "plan", "errors", "root"},
    "retape.nnx": {"jaxpr", "plan", "errors", "root", "retape.jax"},
    "retape.torch": {"eager", "plan", "errors", "root"},
    "retape.vlad": {"vlad", "plan", "errors", "root"},
    "cli": {
        "retape.vlad",
        "viz",
        "driver",
        "front",
        "plan",
        "schedule",
        "errors",
        "bytes",
        "root",
    },
}

FOLDERS = {"schedule", "storage", "driver", "viz", "cli"}
ENGINES = {"jaxpr", "eager", "vlad"}
FACADES = {"jax", "nnx", "torch", "vlad"}
FRAMEWORKS = {
    "schedule": set(),
    "storage": {"numpy"},
    "driver": set(),
    "plan": set(),
    "front": set(),
    "viz": {"matplotlib"},
    "errors": set(),
    "bytes": set(),
}
KNOWN_FRAMEWORKS = {"numpy", "jax", "jaxlib", "torch", "flax", "matplotlib", "scipy"}


def layer_of(module: str) -> str:
    """The layer of a dotted name such as `retape.engines.jaxpr._machine`."""
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
    if (
        first == "_budget"
        or first.startswith("_plan")
        or first.endswith(("_plan", "_plans"))
    ):
        return "plan"
    if first == "_bytes":
        return "bytes"
    return "front" if first in ("_adjoint", "interop") else "errors"


def module_name(path: Path, sources: Path) -> str:
    parts = ["retape", *path.relative_to(sources).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, sources: Path) -> set[str]:
    """The absolute names of all modules imported anywhere in a file."""
    module = module_name(path, sources)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
    assert violations(SOURCES) == []


def test_numpy_is_imported_by_one_module_below_the_engines():
    users = [
        module_name(path, SOURCES)
        for path in SOURCES.rglob("*.py")
        if layer_of(module_name(path, SOURCES)) in FRAMEWORKS
        and any(name.split(".")[0] == "numpy" for name in imports(path, SOURCES))
    ]
    assert users == ["retape.storage._codec"]


def test_every_package_and_module_has_a_layer_and_a_docstring():
    for path in SOURCES.rglob("*.py"):
        assert layer_of(module_name(path, SOURCES)) in MAY_IMPORT
        if path.read_text().strip():
            assert ast.get_docstring(ast.parse(path.read_text())), path


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("schedule/_a.py", "from ..driver import run", "imports retape.driver"),
        ("schedule/_a.py", "import numpy as np", "(schedule) imports numpy"),
        ("storage/_a.py", "def f():\n    from ..schedule import Store", "retape.sched"),
        ("driver/_a.py", "from .. import _plan", "imports retape._plan"),
        ("engines/jaxpr/_a.py", "from ..eager import x", "imports retape.engines.eag"),
        ("engines/vlad/_a.py", "from retape import viz", "imports retape.viz"),
        ("viz/_a.py", "from ..engines import jaxpr", "imports retape.engines.jaxpr"),
        ("_plan.py", "from retape.driver._drive import run", "retape.driver._drive"),
    ],
)
def test_the_check_says_no(tmp_path, file, text, said):
    for package in ["driver", "schedule", "viz", "engines/jaxpr", "engines/eager"]:
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
    (tmp_path / "_plan.py").write_text("")
    target = tmp_path / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    assert any(said in line for line in violations(tmp_path))
