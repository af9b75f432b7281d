"""No picture of the documentation is older than the code that draws it."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from tests.docs.pages import ROOT

GALLERY = runpy.run_path(str(ROOT / ".ci" / "gallery.py"))


def drawn() -> list[Any]:
    """Each picture that a page draws, with the section that it stands in."""
    return [
        pytest.param(name, section, id=name)
        for page in GALLERY["PAGES"]
        for section in GALLERY["sections"](ROOT / "docs" / f"{page}.md")
        for name in GALLERY["PICTURE"].findall(section)
    ]


@pytest.mark.parametrize(("name", "section"), drawn())
def test_a_picture_is_as_new_as_its_page(name: str, section: str) -> None:
    for ground in GALLERY["GROUNDS"]:
        file = ROOT / "docs" / "assets" / f"gallery-{name}-{ground}.svg"
        assert file.read_text().endswith(GALLERY["stamp"](section)), (
            f"draw it anew: python .ci/gallery.py {name}"
        )


def test_a_page_that_has_changed_is_found() -> None:
    before = "```python\na = 1\n```\n"
    assert GALLERY["stamp"](before) == GALLERY["stamp"]("Words.\n\n" + before)
    assert GALLERY["stamp"](before) != GALLERY["stamp"](before.replace("1", "2"))


def test_every_picture_of_the_gallery_is_on_a_page() -> None:
    names = {parameter.values[0] for parameter in drawn()}
    there = {
        re.sub(r"^gallery-|-(light|dark)$", "", path.stem)
        for path in (ROOT / "docs" / "assets").glob("gallery-*.svg")
    }
    assert there == names and len(names) >= 8
