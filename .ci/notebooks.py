"""Each page with examples as a notebook, made when the pages are built.

The cells are the page's own blocks, which the tests run. Nothing is stored twice.
"""

import json
import re
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$\n?", re.MULTILINE | re.DOTALL)
CODE = "python|pycon|py"
"""What becomes a cell of code. `py` is run by `make pictures`, or meant to be read."""
_made: dict[str, dict[str, Any]] = {}


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Called by mkdocs for each page: keep its notebook, and add a link to it."""
    if not re.search(rf"^```({CODE})\b", markdown, re.MULTILINE):
        return markdown
    name = Path(page.file.src_path).stem
    url = Path(page.file.dest_path).parent / f"{name}.ipynb"
    _made[str(url)] = notebook(markdown)
    link = f'<a href="{name}.ipynb" download>This page as a notebook</a>'
    head, line, rest = markdown.partition("\n")
    return f"{head}{line}\n<small>{link}</small>\n{rest}"


def on_post_build(config: Any, **_: object) -> None:
    """Called by mkdocs at the end."""
    for url, made in _made.items():
        out = Path(config["site_dir"]) / url
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(made, indent=1), encoding="utf-8")


def notebook(markdown: str) -> dict[str, Any]:
    """A page as a notebook: its Python as cells of code, with what they print."""
    cells: list[dict[str, Any]] = []
    end = 0
    for match in FENCE.finditer(markdown):
        language, text = match[1], match[2]
        gap = markdown[end : match.start()]
        shown = language == "text" and cells and "outputs" in cells[-1]
        end = match.end()
        if shown and not gap.strip():
            cells[-1]["outputs"] = [_printed(text)]
            continue
        _prose(cells, gap)
        if language in ("python", "py"):
            cells.append(_code(text))
        elif language == "pycon":
            cells.append(_code(_statements(text)))
        else:
            _prose(cells, match[0])
    _prose(cells, markdown[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _prose(cells: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        cell = {"cell_type": "markdown", "metadata": {}, "source": text.strip()}
        cells.append(cell)


def _code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": text.rstrip("\n"),
    }


def _printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _statements(text: str) -> str:
    """The lines of a session that were typed."""
    typed = (line for line in text.split("\n") if line.startswith((">>>", "...")))
    return "\n".join(line[4:] for line in typed)
