"""Every hint of the sources: what a message tells its reader to do, with its code.

A hint is a verb that asks for something ("write", "pass", "say" and the like) with code
in back quotes that follows it in the same part of a sentence. Messages are all texts of
the sources but for docstrings; what is filled in when a message is made stands as `{}`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.sources import parsed_text

SOURCES = Path(__file__).resolve().parents[2] / "src" / "retape"

VERBS = "|".join(("write", "pass", "say", "use", "call", "set", "give", "run"))
NOUN = frozenset(
    "a an another each every first is last of one that the this was".split()
)
"""Words after which "call", "run" and "use" ask for nothing."""
HINT = re.compile(
    rf"""
    (?: \b (?P<before>\w+) \s | \b )
    (?P<phrase>
        (?: {VERBS} ) \s
        (?: (?! \b(?:{VERBS})\b ) [^`.;:?] )*   # no other verb, the same sentence
        ` (?P<code> [^`]+ ) `
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
FILLED = "{}"
DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)
ASKS = re.compile(rf"\b(?:{VERBS})\s", re.IGNORECASE)


@dataclass(frozen=True)
class Hint:
    """A hint as it stands in the sources.

    Attributes:
        place: The module, from `retape` on, and the line of its text.
        phrase: From the verb to the back quote that ends the code.
        code: What stands between the back quotes.
    """

    place: str
    phrase: str
    code: str

    def is_said_by(self, phrase: str) -> bool:
        """Tell whether a phrase of a real message can be this one, filled in."""
        return self._filled_in.fullmatch(phrase) is not None

    @cached_property
    def _filled_in(self) -> re.Pattern[str]:
        parts = [re.escape(part) for part in self.phrase.split(FILLED)]
        return re.compile(".*".join(parts), re.DOTALL)

    @property
    def known(self) -> int:
        """How many letters are known before the message is made."""
        return len(self.phrase.replace(FILLED, ""))


def phrases(message: str) -> Iterator[tuple[str, str]]:
    """The hints of one message: each phrase, and its code."""
    for match in HINT.finditer(re.sub(r"\s+", " ", message)):
        if (match["before"] or "").lower() not in NOUN:
            yield match["phrase"], match["code"]


def hints(sources: Path = SOURCES) -> list[Hint]:
    """All hints of the modules below a folder."""
    found: list[Hint] = []
    for path in sorted(sources.rglob("*.py")):
        inside = path.relative_to(sources)
        for line, text in messages(path.read_text(encoding="utf-8")):
            found += [Hint(f"{inside}:{line}", *each) for each in phrases(text)]
    return found


def messages(source: str) -> Iterator[tuple[int, str]]:
    """The texts of a module that are no docstrings, each with its line."""
    code = DOCSTRING.sub("", source)
    if "`" not in code or not ASKS.search(code):
        return  # to parse every module takes three times as long
    seen: set[ast.AST] = set()
    for node in ast.walk(parsed_text(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                seen.add(node.value)
            case ast.JoinedStr() | ast.Constant(value=str()) | ast.BinOp(op=ast.Add()):
                if node not in seen and "`" in (text := _text(node, seen) or ""):
                    yield node.lineno, text


def _text(node: ast.AST, seen: set[ast.AST]) -> str | None:
    """A text with `{}` for what is not known of it; `None` for another value.

    What has become a part of the text is `seen`.
    """
    match node:
        case ast.Constant(value=str(text)):
            found = text
        case ast.JoinedStr(values=values):
            found = "".join(_text(each, seen) or FILLED for each in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = _text(left, seen), _text(right, seen)
            if sides == (None, None):
                return None
            found = "".join(FILLED if each is None else each for each in sides)
        case _:
            return None
    seen.add(node)
    return found
