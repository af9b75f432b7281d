"""Puts every public name, with a sentence, on its page, when the pages are built.

Names and sentences are read from the sources: what a public module re-exports as
`X as X` or lists in `__all__`, and the first sentence of its docstring.

As a program: `python .ci/names.py`.
"""

import ast
import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "retape"
MARK = "<!-- every public name -->"
COMMANDS = ("cli",)
"""Packages with a command, which nobody imports."""


def public_names() -> dict[str, dict[str, str]]:
    """The sentences of all names, by the module that has them."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted([*SOURCES.glob("*.py"), *SOURCES.glob("*/__init__.py")]):
        stem = path.parent.name if path.name == "__init__.py" else path.stem
        if stem.startswith("_") or stem in COMMANDS:
            continue
        names = {name: _sentence(*home) for name, home in sorted(_homes(path).items())}
        if names:
            found["retape" if path.parent == SOURCES.parent else stem] = names
    return {("retape" if m == "retape" else f"retape.{m}"): n for m, n in found.items()}


def _homes(path: Path) -> dict[str, tuple[Path, str]]:
    """The public names of a module, and the modules that define them."""
    body = ast.parse(path.read_text("utf-8")).body
    later = [node for each in body if isinstance(each, ast.If) for node in each.body]
    found: dict[str, tuple[Path, str]] = {}
    for node in [*body, *later]:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name == alias.asname and not alias.name.startswith("_"):
                    found[alias.name] = _file(f"{node.module}.{alias.name}"), alias.name
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            for name in ast.literal_eval(node.value):
                found.setdefault(name, (path, name))
    return found


def _file(dotted: str) -> Path:
    """The module of a name; a name may be a module itself."""
    for name in (dotted, dotted.rpartition(".")[0]):
        base = SOURCES.parent.joinpath(*name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.exists():
                return path
    raise LookupError(dotted)


def _sentence(path: Path, name: str) -> str:
    """The first sentence about a name; empty if there is none."""
    tree = ast.parse(path.read_text("utf-8"))
    if path.stem == name or path.parent.name == name:
        return _first(tree)
    return next(
        said
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        if (said := _first(node))  # an overload has none
    )


def _first(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`\d]\.)\s", text)[0]


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for each page."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown


def table() -> str:
    """All names, a table for each module."""
    parts = []
    for module, names in public_names().items():
        rows = [f"| `{name}` | {text} |" for name, text in names.items()]
        parts.append("\n".join([f"### {module}", "", "| name | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(table())
