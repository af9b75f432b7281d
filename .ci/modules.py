"""Puts packages and modules on the page of the architecture, when it is built.

The parts stand as in `tests/architecture.toml`, and within a package the modules stand
in the order of reading: each after all that it imports there. The text beside a module
is the first line of its docstring, so the map cannot grow old.

As a program: `python .ci/modules.py [FOLDER]`, for instance `engines/jaxpr/sweep`.
"""

import ast
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "retape"
TABLES = tomllib.loads((ROOT / "tests" / "architecture.toml").read_text("utf-8"))
MARK = "<!-- every module -->"
PACKAGES = "<!-- every package -->"
GROUND = ("schedule", "storage", "plan", "driver", "_native_code")
ENGINES = ("jaxpr", "eager", "vlad")


def folders() -> list[Path]:
    """All packages: the ground, then each engine in the order of its pipeline."""
    found = [SOURCES / name for name in GROUND]
    for engine in ENGINES:
        base = SOURCES / "engines" / engine
        named = (base.joinpath(*name.split(".")) for name in TABLES[engine])
        found += [base, *(folder for folder in named if folder.is_dir())]
    found += [SOURCES, *sorted(p.parent for p in SOURCES.rglob("__init__.py"))]
    # A private package within one is read with it.
    with_parts = (part for f in found for part in (f, *sorted(f.glob("_*"))))
    return [f for f in dict.fromkeys(with_parts) if (f / "__init__.py").exists()]


def modules(folder: Path) -> list[Path]:
    """The modules of a package, each after those that it imports."""
    paths = {p.stem: p for p in sorted(folder.glob("*.py")) if p.stem != "__init__"}
    prefix = ".".join(["retape", *folder.relative_to(SOURCES).parts]) + "."
    graph = {name: _imported(path, prefix) & set(paths) for name, path in paths.items()}
    order = TopologicalSorter({n: sorted(graph[n] - {n}) for n in sorted(graph)})
    return [paths[name] for name in order.static_order()]


def _imported(path: Path, prefix: str) -> set[str]:
    """The modules beside this one that it needs to be imported."""
    tree = ast.parse(path.read_text("utf-8"))
    found: set[str] = set()
    for node in tree.body:  # those under `if TYPE_CHECKING` are not needed
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in (node.module, *names):
                found.add(name.removeprefix(prefix).split(".")[0])
    return found


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def listing(folder: Path) -> list[str]:
    """A package as Markdown: a heading, what it is for, and a row a module."""
    name = folder.relative_to(SOURCES).as_posix()
    rows = [f"| `{p.stem}` | {_safe(purpose(p))} |" for p in modules(folder)]
    head = [f"### `{'retape' if name == '.' else name}`", ""]
    head += [_safe(purpose(folder / "__init__.py")), ""]
    return [*head, "| module | |", "|---|---|", *rows, ""] if rows else []


def source(engine: str, package: str) -> Path:
    """The file whose docstring says what a package, or a module that is one, is for."""
    folder = SOURCES / "engines" / engine
    if package == "root":
        return folder / "__init__.py"
    path = folder.joinpath(*package.split("."))
    choices = path / "__init__.py", path.with_suffix(".py")
    found = next((each for each in choices if each.exists()), None)
    return found or path.with_name(f"_{path.name}.py")


def packages(engine: str) -> list[str]:
    """An engine's packages as Markdown, in the order of its pipeline."""
    head = [f"### {engine}", "", "| package | purpose | may import |", "|---|---|---|"]
    rows = [
        f"| `{name}` | {_safe(purpose(source(engine, name)))} | {', '.join(targets)} |"
        for name, targets in TABLES[engine].items()
    ]
    return [*head, *rows, ""]


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for each page."""
    if MARK not in markdown:
        return markdown
    modules = [line for folder in folders() for line in listing(folder)]
    tables = [line for engine in ENGINES for line in packages(engine)]
    with_packages = markdown.replace(PACKAGES, "\n".join(tables))
    return with_packages.replace(MARK, "\n".join(modules))


def _safe(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


if __name__ == "__main__":
    for each in [SOURCES / sys.argv[1]] if sys.argv[1:] else folders():
        print("\n".join(listing(each)))
