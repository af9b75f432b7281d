"""Draws the pictures of the gallery: each page's own blocks, run once, drawn twice.

    python .ci/gallery.py [NAME ...]

A block of a page that makes a `figure` is drawn light and dark; the picture below the
block on the page, `gallery-NAME-light.svg`, says where it goes. So what a picture shows
is what the page computed. `make pictures` calls this; with names it draws those alone,
and runs their sections only. Each picture ends with a stamp of the code of its
section, so that `tests/docs/test_pictures.py` finds one that is older than its page.

Blocks marked `py` are those of a page that takes too long for the tests: they are run
here, and what they print is compared with the page.
"""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import io
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(
    r"^```(python|pycon|py)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
PICTURE = re.compile(r"gallery-(\w+)-light\.svg")
PAGES = "gallery/index", "solvers/simulators", "start/functions"
GROUNDS = {
    "light": ("default", "#222222", ["#3274a1", "#d9a441", "#3a923a", "#c03d3e"]),
    "dark": (
        "dark_background",
        "#e6e6e6",
        ["#5b9bd5", "#d9a441", "#5cb85c", "#e0605e"],
    ),
}


def run(language: str, text: str, names: dict[str, Any]) -> str:
    """A block of a page, quietly; returns what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if language != "pycon":
            exec(compile(text, "<page>", "exec"), names)
        else:
            test = doctest.DocTestParser().get_doctest(text, names, "page", None, 0)
            doctest.DocTestRunner(verbose=False).run(test, clear_globs=False)
            names.update(test.globs)
    return out.getvalue()


def sections(page: Path) -> list[str]:
    """The parts of a page between its headings of the second rank."""
    return re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


def stamp(section: str) -> str:
    """What a picture of a section ends with: a digest of the section's code."""
    code = "".join(found[2] for found in BLOCK.finditer(section))
    return f"<!-- drawn by {hashlib.sha256(code.encode()).hexdigest()[:16]} -->\n"


def draw(page: Path, chosen: list[str]) -> None:
    """All pictures of a page, or those that are named."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for section in sections(page):
        if not chosen or set(chosen) & set(PICTURE.findall(section)):
            draw_section(section, names)


def draw_section(text: str, names: dict[str, Any]) -> None:
    """The pictures of a section; `names` are what the sections before it made."""
    import matplotlib
    import matplotlib.pyplot as plt

    for found in BLOCK.finditer(text):
        names.pop("figure", None)
        printed = run(found[1], found[2], names)
        # Before it a package may have said what else is not installed.
        if found[1] == "py" and not printed.endswith(found[3] or ""):
            sys.exit(f"shown\n{found[3]}\nprinted\n{printed}")
        picture = PICTURE.search(text, found.end(), found.end() + 300)
        if "figure" not in names or picture is None:
            continue
        for ground, (style, ink, colours) in GROUNDS.items():
            plt.close("all")
            with plt.style.context(style):
                matplotlib.rcParams.update(
                    {
                        "font.size": 12,  # legible where a phone makes it smaller
                        "svg.fonttype": "none",
                        "svg.hashsalt": "retape",
                        "axes.spines.top": False,
                        "axes.spines.right": False,
                        "text.color": ink,
                        "axes.prop_cycle": plt.cycler(color=colours),
                    }
                )
                run(found[1], found[2], names)
                out = DOCS / "assets" / f"gallery-{picture[1]}-{ground}.svg"
                names["figure"].savefig(
                    out, metadata={"Date": None}, transparent=True, dpi=150
                )
            with out.open("a", encoding="utf-8") as file:
                file.write(stamp(text))
            print(out.relative_to(DOCS.parent), flush=True)


def main(chosen: list[str]) -> None:
    """Draw the pictures that are named, or all."""
    import matplotlib

    matplotlib.use("agg")
    for name in PAGES:
        draw(DOCS / f"{name}.md", chosen)


if __name__ == "__main__":
    main(sys.argv[1:])
