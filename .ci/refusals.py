"""Puts every refusal of the sources on the page of symptoms, when the pages are built.

The texts are read from the `raise` statements themselves, so the list is complete and
cannot grow old.
"""

import ast
import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "retape"
MARK = "<!-- every refusal -->"
KINDS = ("UnsupportedError", "MutationError")
PARTS = {
    "engines/jaxpr": "JAX",
    "engines/eager": "PyTorch",
    "engines/vlad": "VLAD and Python functions",
    "": "Step functions, stores and plans",
}


def refusals(sources: Path = SOURCES) -> dict[str, list[str]]:
    """What is refused, by part of the library."""
    found: dict[str, list[str]] = {part: [] for part in PARTS.values()}
    for path in sorted(sources.rglob("*.py")):
        inside = path.relative_to(sources).as_posix()
        part = next(name for start, name in PARTS.items() if inside.startswith(start))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (text := _refused(node)) and text not in found[part]:
                found[part].append(text)
    return found


def _refused(node: ast.AST) -> str:
    """The text of a call that makes a refusal."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return ""
    if node.func.id not in KINDS or not node.args:
        return ""
    return re.sub(r"\s+", " ", _text(node.args[0])).strip()


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(each) for each in values)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case _:
            return "…"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for each page."""
    if MARK not in markdown:
        return markdown
    lines: list[str] = []
    for part, texts in refusals().items():
        lines += [f"### {part}", "", *(f"- {_safe(text)}" for text in texts), ""]
    return markdown.replace(MARK, "\n".join(lines))


def _safe(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[")
