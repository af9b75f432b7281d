"""Puts the lines of the answers on the page of first questions, when it is built.

A row of that page has a question, a link and the words that answer it. The words are
looked for on the page of the link, in the section that it names, so a line cannot grow
old; words that are not there any more are an error.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "devdocs" / "first-questions.md"
ROW = re.compile(r"^\| (.+?) \| \[[^]]+\]\((\S+?)\) \| “(.+?)” \|$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Answer(NamedTuple):
    """Where a question is answered."""

    question: str
    page: str
    line: int


def answers(markdown: str, at: Path = PAGE) -> Iterator[Answer]:
    """All rows of the page, with the lines of their answers."""
    for question, link, words in ROW.findall(markdown):
        name, _, anchor = link.partition("#")
        page = (at.parent / name).resolve()
        text = page.read_text(encoding="utf-8")
        start, stop = _section(text, anchor) if anchor else (0, len(text))
        # Words may go on in the next line.
        pattern = re.compile(r"\s+".join(map(re.escape, words.split())))
        found = pattern.search(text, start, stop)
        if found is None:
            raise ValueError(f"{question} {link} does not say “{words}” any more.")
        line = text.count("\n", 0, found.start()) + 1
        yield Answer(question, page.relative_to(DOCS).as_posix(), line)


def _section(text: str, anchor: str) -> tuple[int, int]:
    """The part of a page below the heading of an anchor, up to one of its own rank."""
    # A comment in a block of code is no heading; places stay what they are.
    prose = FENCED.sub(lambda block: "." * len(block[0]), text)
    for found in HEADING.finditer(prose):
        if _slug(found[1]) == anchor:
            rank = found[0].index(" ")
            after = re.compile(rf"^#{{1,{rank}}} ", re.MULTILINE)
            end = after.search(prose, found.end())
            return found.start(), end.start() if end else len(text)
    raise ValueError(f"no heading is `#{anchor}`")


def _slug(heading: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for each page."""
    lines = answers(markdown)
    return ROW.sub(lambda row: f"{row[0][:-2]} (line {next(lines).line}) |", markdown)
