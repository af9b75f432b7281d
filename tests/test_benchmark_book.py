"""The book of benchmarks: what it says, and that it tells what got worse."""

import json
import re
from pathlib import Path

from benchmarks import quick
from benchmarks.__main__ import index

ROOT = Path(__file__).resolve().parents[1]
QUICK = vars(quick)


def figures(**changed):
    values = {"bytes": (0.5, "bytes"), "time": (2.0, "time"), "made": (100.0, "rate")}
    values |= {name: (new, values[name][1]) for name, new in changed.items()}
    return {n: {"value": v, "kind": kind} for n, (v, kind) in values.items()}


def test_the_book_says_where_and_when():
    book = json.loads((ROOT / "docs" / "assets" / "bench-quick.json").read_text())
    for key in ("date", "commit", "machine", "python", "releases", "seconds"):
        assert book[key]
    assert book["figures"].keys() == QUICK["ENGINES"].keys()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert QUICK["as_page"](book, page) == page, "run make bench-quick ARGS=--write"


def test_what_got_worse_is_named():
    worse = QUICK["worse"]
    assert worse(figures(), figures()) == []
    assert worse(figures(bytes=0.4, time=3.9, made=500), figures()) == []
    assert worse(figures(bytes=0.54), figures()) == ["bytes: 0.5 before, 0.54 now"]
    assert worse(figures(time=4.1), figures()) == ["time: 2.0 before, 4.1 now"]
    assert worse(figures(made=40.0), figures()) == ["made: 100.0 before, 40.0 now"]
    assert worse({}, {"a": {"value": 1, "kind": "bytes"}}) == ["a: no longer measured"]


def test_the_index_names_every_program():
    names = set()
    for file in (ROOT / "benchmarks").glob("**/*.py"):
        text = file.read_text()
        # What prints one line of JSON is a process of another program's.
        if "\nif __name__ ==" in text and "one line of JSON" not in text:
            parts = file.relative_to(ROOT / "benchmarks").with_suffix("").parts
            names.add(".".join(part for part in parts if part != "__main__"))
    assert len(index()) == len(set(index())) and set(index()) == names - {""}


def test_the_index_says_of_every_program_where_its_figures_stand():
    for line in (ROOT / "benchmarks" / "README.md").read_text().splitlines():
        if re.match(r"\| `[a-z_.]+` \|", line):
            pages = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", line)
            assert pages, line
            assert all((ROOT / "benchmarks" / page).is_file() for page in pages), line


def test_every_benchmark_that_a_text_names_is_there():
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    texts += [*(ROOT / "src").glob("**/*.py"), *(ROOT / "docs").glob("**/*.md")]
    texts += [
        f for f in (ROOT / "benchmarks").glob("**/*") if f.suffix in (".py", ".md")
    ]
    named = 0
    for file in texts:
        text = file.read_text()
        modules = re.findall(r"-m (benchmarks(?:\.\w+)*)", text)
        paths = [f"{each.replace('.', '/')}.py" for each in modules]
        paths += re.findall(r"benchmarks/\w+(?:/\w+)*\.\w+", text)
        for path in paths:
            there = ROOT / path
            main = there.with_suffix("") / "__main__.py"
            assert there.is_file() or main.is_file(), (file, path)
        named += len(paths)
    assert named > 50
