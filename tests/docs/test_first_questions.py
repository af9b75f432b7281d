"""What six people ask first is answered: on which page, and in which words.

`python -m tests.docs.test_first_questions` prints the table with the lines.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import FENCE, ROOT

DOCS = ROOT / "docs"
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Question(NamedTuple):
    """A question, and where the answer stands: a page or one section of it."""

    asked: str
    link: str
    words: str


ROW = re.compile(r"^\| (.+?) \| ([\w/-]+\.md\S*) \| (.+) \|$", re.MULTILINE)
PARTS = Path(__file__).with_name("first_questions.md").read_text().split("\n## ")[1:]
ROLES = {
    part.partition("\n")[0]: [Question(*row) for row in ROW.findall(part)]
    for part in PARTS
}


def section(text: str, anchor: str) -> tuple[int, int]:
    """The part of a page below the heading of an anchor, up to one of its rank."""
    # A comment in a block of code is no heading; places stay what they are.
    prose = FENCE.sub(lambda block: "." * len(block[0]), text)
    for found in HEADING.finditer(prose):
        words = re.sub(r"[^\w\s-]", "", found[1]).strip().lower()
        if re.sub(r"[-\s]+", "-", words) == anchor:
            rank = found[0].index(" ")
            after = re.compile(rf"^#{{1,{rank}}} ", re.MULTILINE)
            end = after.search(prose, found.end())
            return found.start(), end.start() if end else len(text)
    raise ValueError(f"no heading is `#{anchor}`")


def answer(question: Question, docs: Path = DOCS) -> int:
    """The line of the answer; words that are not there any more are an error."""
    name, _, anchor = question.link.partition("#")
    text = (docs / name).read_text()
    start, stop = section(text, anchor) if anchor else (0, len(text))
    # Words may go on in the next line.
    pattern = re.compile(r"\s+".join(map(re.escape, question.words.split())))
    found = pattern.search(text, start, stop)
    if found is None:
        raise ValueError(f"{question.link} does not say “{question.words}” any more.")
    return text.count("\n", 0, found.start()) + 1


@pytest.mark.parametrize("role", ROLES)
def test_what_a_newcomer_asks_first_is_answered(role: str) -> None:
    assert len(ROLES) == 6 and len(ROLES[role]) == 10
    assert all(answer(each) > 0 for each in ROLES[role])


def test_an_answer_that_is_gone_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\n\n## One\n\nYes.\n\n## Two\n\nNo.\n")
    assert answer(Question("?", "page.md#one", "Yes."), tmp_path) == 5
    with pytest.raises(ValueError, match="does not say “Yes.” any more"):
        answer(Question("?", "page.md#two", "Yes."), tmp_path)


if __name__ == "__main__":
    for role, questions in ROLES.items():
        print(f"# {role}")
        for each in questions:
            print(f"{each.asked:36} {each.link.partition('#')[0]}:{answer(each)}")
