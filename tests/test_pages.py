"""The reference: every public name is on a page, once, and no link leads nowhere."""

import importlib
import inspect
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

LISTED = runpy.run_path(str(ROOT / ".ci" / "names.py"))["public_names"]()
FACADES = [module for module in LISTED if module != "retape.native"]


def pages() -> list[Path]:
    return [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def directives() -> list[str]:
    """The dotted names that the reference shows."""
    return [name for page in pages() for name in DIRECTIVE.findall(page.read_text())]


def named(dotted: str) -> Any:
    """The object of a dotted name."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise LookupError(dotted)


@pytest.fixture(scope="session")
def shown() -> set[int]:
    """The objects on the pages; to find them every engine is loaded."""
    return {id(named(dotted)) for dotted in directives()}


@pytest.mark.parametrize("facade", FACADES)
def test_every_public_name_is_on_a_page(facade: str, shown: set[int]) -> None:
    module = importlib.import_module(facade)
    missing = []
    for name in LISTED[facade]:
        value = getattr(module, name)
        inside = getattr(value, "__all__", None)
        values = [value] if inside is None else [getattr(value, n) for n in inside]
        # A type that is written out has no identity: its name must do.
        plain = type(value).__module__ in ("typing", "types")
        if plain and any(d.rpartition(".")[2] == name for d in directives()):
            continue
        if not all(id(each) in shown for each in values):
            missing.append(name)
    assert missing == [], f"put `::: {facade}.NAME` of these on a page of docs/api"


def test_nothing_is_on_two_pages() -> None:
    twice = [name for name, count in Counter(directives()).items() if count > 1]
    assert twice == []


def test_the_pages_of_the_reference_are_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert str(page.relative_to(ROOT / "docs")) in menu, page


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings and directives."""
    text = FENCED.sub("", page.read_text())
    found = set(DIRECTIVE.findall(text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", words))
    return found


def dead_links(page: Path) -> list[str]:
    """Links of a page to files or headings that are not there."""
    dead: list[str] = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_link_leads_nowhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](#a-title) [b](b.md) [c](#c) `[d](d)`\n[e](page.md)")
    assert dead_links(page) == ["b.md", "#c", "d"]


@pytest.mark.slow
def test_the_page_of_symptoms_has_the_refusals_of_the_sources():
    found = runpy.run_path(str(ROOT / ".ci" / "refusals.py"))["refusals"]()
    assert len(found) == 4 and all(found.values())
    texts = " ".join(sum(found.values(), []))
    assert "outside `recompute`" in texts and "compiler made an object" in texts
    assert (
        "<!-- every refusal -->" in (ROOT / "docs" / "troubleshooting.md").read_text()
    )


def test_a_page_as_a_notebook_has_its_program_and_its_output():
    notebook = runpy.run_path(str(ROOT / ".ci" / "notebooks.py"))["notebook"]
    page = (
        "# T\n\n```python\na = 1\nprint(a)\n```\n\n```text\n1\n```\n\nMore.\n\n"
        "```text\nno output\n```\n```pycon\n>>> if a:\n...     2\n2\n\n```\n"
    )
    cells = notebook(page)["cells"]
    kinds = [cell["cell_type"] for cell in cells]
    assert kinds == ["markdown", "code", "markdown", "markdown", "code"]
    assert cells[1]["source"] == "a = 1\nprint(a)"
    assert cells[1]["outputs"][0]["text"] == "1\n"
    assert cells[4]["source"] == "if a:\n    2" and not cells[4]["outputs"]
    for path in pages():
        for cell in notebook(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                compile(cell["source"], str(path), "exec")


def test_every_row_of_the_table_of_coverage_names_tests_that_are_there() -> None:
    parts = (ROOT / "tests" / "coverage.md").read_text().split("\n## ")[1:]
    assert len(parts) == 5, "a part for each document"
    for row in [line for line in "\n".join(parts).splitlines() if line[:2] == "| "]:
        named_there = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named_there or "| ---" in row or "shown by" in row.lower(), row
        for file, name in named_there:
            text = (ROOT / "tests" / file).read_text()
            assert re.search(rf"^def {name}\(", text, re.M), f"{file}::{name}"


def test_what_does_not_compose_is_named_on_the_page_of_what_does() -> None:
    section = runpy.run_path(str(ROOT / ".ci" / "composition.py"))["section"]
    found = {((r,), (c,)): "=" for r in ("scan", "loop") for c in ("grad", "vjp")}
    first = {"scan; loop": "T"}
    assert "**What**: scan; loop." in section("T", "it holds", found, first)
    assert '**What**: as in "T".' in section("S", "it holds", found, first)
    found |= {(("loop",), ("vjp",)): "refused"}
    del found[("scan",), ("vjp",)]
    *_, refused, _ = lines = section("T", "it holds", found, first)
    assert refused == "**Refused**, vjp: loop." and "**Not asked**, vjp: scan." in lines


def test_forty_pages_are_enough() -> None:
    texts = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
    assert len(texts) <= 40
    # A bar between two cells is no word.
    words = [word for text in texts for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= 38_000


@pytest.mark.parametrize("facade", FACADES)
def test_every_public_function_has_an_example(facade: str) -> None:
    module = importlib.import_module(facade)
    for name in LISTED[facade]:
        value = getattr(module, name)
        doc = inspect.getdoc(value) or ""
        assert not inspect.isfunction(value) or ">>>" in doc, f"`{facade}.{name}`"
        # The generator of the pages knows `Examples:` only.
        assert not re.search(r"^Example:$", doc, re.MULTILINE), f"`{facade}.{name}`"
