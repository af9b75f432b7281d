"""Names in back quotes, in docstrings, comments and pages, are of what there is.

A text that points to a module that is gone sends its reader nowhere. Read from the
sources, with a test that it catches a lie.
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "retape"

QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MODULE = re.compile(r"\w+(/\w+)*/_\w+(\.\w+)*")
FILE = re.compile(r"([\w.-]+/)*[\w.-]+\.(py|md|toml)")
TOKEN = re.compile(
    r'(?P<doc>"""(?s:.*?)""")|(?P<comment>#.*)|"(?P<text>(?:\\.|[^"\\\n])*)"'
    r"|'(?:\\.|[^'\\\n])*'|(?P<word>[A-Za-z_]\w*)"
)
"""What a source is made of; parsing it takes ten times as long."""
CLASS = re.compile(r"^class (\w+)(\()?.*\n((?:[ \t)\]].*\n|\n)*)", re.MULTILINE)


@cache
def read(source: str) -> tuple[frozenset[str], list[tuple[int, str]]]:
    """A module's identifiers, with texts that are one; its docstrings and comments.

    Each of these has its line.
    """
    words: set[str] = set()
    texts: list[tuple[int, str]] = []
    for token in TOKEN.finditer(source):
        if token["doc"] or token["comment"]:
            texts.append((source.count("\n", 0, token.start()) + 1, token.group()))
        else:
            words.add(token["word"] or token["text"] or "")
    return frozenset(word for word in words if word.isidentifier()), texts


class Names:
    """What the modules below a folder speak of, outside their docstrings and comments.

    Attributes:
        modules: The words of each module, by its dotted name.
        ends: The modules whose names end in a dotted name, by that.
        words: Every identifier that is used anywhere, and every module.
        members: The words of a class, by its name.
        derived: The classes that have bases.
    """

    def __init__(self, folder: Path) -> None:
        self.modules: dict[str, frozenset[str]] = {}
        self.ends: dict[str, list[str]] = {}
        self.words: set[str] = set()
        self.members: dict[str, set[str]] = {}
        self.derived: set[str] = set()
        for path in folder.rglob("*.py"):
            parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            source, module = path.read_text(), ".".join(parts)
            self.modules[module], _ = read(source)
            self.words |= {*parts, *self.modules[module]}
            for i in range(len(parts)):
                self.ends.setdefault(".".join(parts[i:]), []).append(module)
            for name, has_bases, body in CLASS.findall(source):
                self.members.setdefault(name, set()).update(read(body)[0])
                self.derived |= {name} if has_bases else set()

    def ending(self, dotted: str) -> list[str]:
        """The modules whose names end in a dotted name."""
        return self.ends.get(dotted, [])

    def resolves(self, dotted: str) -> bool | None:
        """Tell whether a name leads to something; `None` if nothing is known of it."""
        parts = dotted.split(".")
        if self.ending(dotted):
            return True
        if len(parts) == 1:
            return dotted in self.words
        if parts[0] in self.members and parts[0] not in self.derived:
            return parts[1] in self.members[parts[0]]
        for split in range(len(parts) - 1, 0, -1):
            if homes := self.ending(".".join(parts[:split])):
                return any(parts[split] in self.modules[home] for home in homes)
        known = not parts[0].startswith("_") or parts[0] in self.words
        return None if known else False


def is_ours(name: str, names: Names) -> bool:
    """Tell whether a name in back quotes is said to be one of these sources."""
    first = name.split(".")[0]
    if "." in name:
        return first == "retape" or first.startswith("_") or first in names.members
    return name.startswith("_") and not name.startswith("__") and len(name) > 2


@cache
def files() -> frozenset[str]:
    """Every file that a text may name, by the ends of its path."""
    found = list(ROOT.glob("*"))
    for folder in ("src", "docs", "tests", "benchmarks", "examples", ".ci"):
        found += (ROOT / folder).rglob("*.*")
    paths = [path.relative_to(ROOT).parts for path in found]
    return frozenset("/".join(p[i:]) for p in paths for i in range(len(p)))


def lies(path: Path, source: str, names: Names) -> list[str]:
    """The names in a module's texts that lead nowhere."""
    found: list[str] = []
    for line, text in read(source)[1]:
        for quoted in QUOTED.findall(text):
            name = quoted.removesuffix("()")
            if FILE.fullmatch(name):
                wrong = name not in files()
            elif MODULE.fullmatch(name):  # `sweep/_pin`, `control/_splits.sweeps`
                wrong = not names.resolves(name.replace("/", "."))
            elif DOTTED.fullmatch(name):
                wrong = is_ours(name, names) and names.resolves(name) is False
            else:
                continue
            if wrong:
                found.append(f"{path}:{line}: `{quoted}`")
    return found


def test_names_in_back_quotes_lead_somewhere() -> None:
    names = Names(SOURCES)
    found: list[str] = []
    for path in sorted(SOURCES.rglob("*.py")):
        found += lies(path.relative_to(SOURCES), path.read_text(), names)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        as_comments = page.read_text().replace("\n", "\n# ")
        found += lies(page.relative_to(ROOT), f"# {as_comments}", names)
    assert found == [], "name what is there now, in back quotes"


def test_a_name_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    home = tmp_path / "retape" / "store"
    home.mkdir(parents=True)
    (home / "_disk.py").write_text("class Disk:\n    def put(self): ...\nlimit = 3\n")
    (home / "__init__.py").write_text("")
    true = (
        "`_disk` `store/_disk` `_disk.limit` `retape.store._disk.Disk` `Disk.put()` "
        "`numpy.zeros` `f(x)` `tests/test_names_in_texts.py` `store._disk.Disk.put`"
    )
    false = (
        "`_disc` `store/_gone` `_disk.most` `retape.store._gone` `Disk.get()` "
        "`_gone.put` `tests/test_gone.py` `shop/_disk`"
    )
    names = Names(tmp_path / "retape")
    assert lies(Path("a.py"), f'"""{true}"""\n# {true}', names) == []
    said = lies(Path("a.py"), f'"""{false}"""\n# {false}', names)
    assert len(said) == 2 * len(false.split()) and said[0] == "a.py:1: `_disc`"
