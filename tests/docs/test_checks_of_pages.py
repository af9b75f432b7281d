"""The check of pages accepts what is true and finds a small lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of, run_page
from tests.docs.warm import Warm


def _page(python: str, shown: str) -> str:
    return f"Text.\n\n```python\n{python}\n```\n\n```text\n{shown}\n```\n"


PAGES = {
    "the truth": (_page("print(1 + 1)", "2"), []),
    "a small lie": (_page("print(1.0001)", "1.0002"), ["line 3: shown\n1.0002"]),
    "what is not shown": ("```python\nprint('hidden')\n```\n\nText.\n", ["hidden"]),
    "names are shared": ("```python\na = 2\n```\n" + _page("print(a)", "2"), []),
    "a lie in a doctest": ("```pycon\n>>> 1 + 1\n3\n```\n", ["Expected"]),
    "text between": ("```python\npass\n```\nAnother thing:\n```text\n5\n```\n", []),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_check_accepts_the_truth_and_finds_a_small_lie(name: str) -> None:
    page, said = PAGES[name]
    found = run_page(page)
    assert len(found) == len(said)
    assert all(words in wrong for words, wrong in zip(said, found, strict=True))


def test_each_page_has_a_process_of_its_own(tmp_path: Path) -> None:
    sets, reads = tmp_path / "sets.md", tmp_path / "reads.md"
    sets.write_text("```python\nimport json\njson.lie = 1\n```\n")
    reads.write_text("```python\nimport json\nassert not hasattr(json, 'lie')\n```\n")
    warm = Warm("json")
    try:
        assert [warm.page(page)[0] for page in (sets, reads)] == [True, True]
    finally:
        warm.close()


def test_what_ends_its_process_or_is_wrong_is_told(tmp_path: Path) -> None:
    page, script = tmp_path / "page.md", tmp_path / "script.py"
    page.write_text("```python\nimport os\nos._exit(3)\n```\n")
    script.write_text("import sys\nprint(sys.argv[1])\nsys.exit(2)\n")
    warm = Warm()
    try:
        right, said, _ = warm.page(page)
        assert not right and "ended with status" in said
        page.write_text(_page("print(2)", "3"))
        right, said, _ = warm.page(page)
        assert not right and "printed\n2" in said
        assert warm.script(script, ["one"], tmp_path)[:2] == (False, "one\n")
        assert not warm.docstrings(["keyword"], tmp_path)[0], "it has no example"
    finally:
        warm.close()


def _lost_fences(text: str) -> list[int]:
    """Lines of blocks that another block begins in, or of one that is not closed."""
    blocks = blocks_of(text)
    torn = [block.line for block in blocks if "```" in block.text]
    return torn + [text.count("\n")] * (text.count("\n```") % 2)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem
)
def test_every_block_of_a_page_is_opened_and_closed(page: Path) -> None:
    assert _lost_fences(page.read_text()) == []


def test_a_block_without_its_first_line_is_found() -> None:
    whole = "Text.\n\n```sh\nmake\n```\n\nThen:\n\n```python\n1\n```\n"
    assert _lost_fences(whole) == []
    assert _lost_fences(whole.replace("```sh\n", "")) != []
