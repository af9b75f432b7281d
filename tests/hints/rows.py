"""A row of the tables: a refused call, what it is told, and the call as told."""

import ast
import builtins
import re
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import retape
from retape import RetapeError, RetapeWarning

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    """A hint, followed.

    Attributes:
        says: What the message tells the reader to do, from the verb to the back quote
            that ends the code; `{}` for a part that no test can know beforehand.
        wrong: Statements that are refused. What is printed, or an error's note, is told
            by their last expression: a text.
        right: The same as the hint says; it has the hint's code in it, as it is or as
            `THE_CODE`, which stands for what the message has there.
        value: What the last expression of `right` gives, computed without Retape.
        written: What `right` has instead of the code, where that names its parts
            (`(if test then else)`) or is no code of this program (a setting, say).
        error: The class of the refusal, where it is not any one of Retape's.
        slow: Whether it takes more than two processor seconds.
    """

    says: str
    wrong: str
    right: str
    value: str = "True"
    written: str = ""
    error: type[BaseException] | None = None
    slow: bool = False


SAYS = re.compile(r"(?:(?P<error>[A-Z]\w+) )?(?P<slow>slow )?says: (?P<says>.*)")
SECTIONS = re.compile(r"\n(?=(?:\w+ )?(?:slow )?says: )")


def rows(gives: str, transcript: str) -> list[Row]:
    """Rows, as a table of text has them: blocks with an empty line between two.

    A block begins with what is wrong. It is told what stands behind `says:`, once or
    several times, each with what is right below it and, behind `gives:`, its value,
    where that is not the one of the whole table. Before `says:` stand the class of the
    error, where it is asked for, and `slow`; behind the hint ` as: ` and what stands in
    the place of its code. A text goes on in lines that begin with four spaces.
    """
    found = []
    for block in transcript.strip().split("\n\n"):
        wrong, *hints = SECTIONS.split(block)
        for hint in hints:
            told, _, right = hint.partition("\n")
            while right.startswith("    "):
                more, _, right = right.partition("\n")
                told += f" {more.strip()}"
            right, _, value = right.partition("\ngives: ")
            found.append(_row(told, wrong, right, value or gives))
    return found


def _row(told: str, wrong: str, right: str, value: str) -> Row:
    parts = SAYS.fullmatch(told)
    assert parts is not None and right, f"this is no row: {told}"
    says, _, written = parts["says"].partition(" as: ")
    name = parts["error"]
    error = name and (getattr(retape, name, None) or getattr(builtins, name))
    return Row(says.strip(), wrong, right, value, written, error, bool(parts["slow"]))


def run(statements: str, names: dict[str, Any], file: Path) -> Any:
    """Run statements from a file, where their source is found, for their last value."""
    file.write_text(statements, encoding="utf-8")
    tree = ast.parse(statements)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(file), "exec"), names)
        return None
    before = ast.Module(tree.body[:-1], [])
    exec(compile(before, str(file), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(file), "eval"), names)


def told(row: Row, names: dict[str, Any], folder: Path) -> str:
    """What the wrong statements are told.

    Raises:
        AssertionError: If they are not refused, or by another error than is documented.
    """
    kinds = (row.error,) if row.error else (RetapeError, RetapeWarning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RetapeWarning)
            said = run(row.wrong, names, folder / "wrong.py")
    except kinds as error:
        return "\n".join((str(error), *getattr(error, "__notes__", ())))
    assert isinstance(said, str), f"this is not refused: {row.wrong}"
    return said


def code_told(row: Row, message: str) -> str:
    """What stands in the back quotes of a hint, as a message has it.

    Raises:
        AssertionError: If the hint is not there.
    """
    parts = [re.escape(part) for part in row.says.split("{}")]
    found = re.search(".*?".join(parts), re.sub(r"\s+", " ", message))
    assert found is not None, f"no hint `{row.says}` in: {message}"
    return found[0].split("`")[-2] if "`" in found[0] else ""


def is_followed(code: str, row: Row) -> bool:
    """Tell whether the right statements are written as the hint says."""
    if row.written:
        return plain(row.written) in plain(row.right)
    parts = [re.escape(part) for part in plain(code).split("...")]
    right = plain(row.right.replace("THE_CODE", code))
    return re.search(".*".join(parts), right) is not None


def plain(text: str) -> str:
    """A text without what does not matter in code: spaces, and which quotes."""
    return re.sub(r"\s+", "", text).replace("'", '"')


def follow(row: Row, names: dict[str, Any], folder: Path) -> None:
    """Do what is wrong, read what is told, and do what it says.

    Raises:
        AssertionError: If the hint is not there, is not what is written, or if what it
            says gives something else.
        RetapeError: If what it says is refused.
    """
    code = code_told(row, told(row, dict(names), folder))
    assert is_followed(code, row), f"{row.right}\nhas not what is said: {row.says}"
    after = dict(names)
    found = run(row.right.replace("THE_CODE", code), after, folder / "right.py")
    expected = run(row.value, after, folder / "value.py")
    assert same(found, expected), f"{found!r} where {expected!r} is right"


def same(found: Any, expected: Any) -> bool:
    """The same value, but for rounding of numbers."""
    if isinstance(expected, list | tuple):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(same(a, b) for a, b in pairs)
    if isinstance(expected, str | bool | Path) or expected is None:
        return type(found) is type(expected) and found == expected
    return bool(np.allclose(np.asarray(found), np.asarray(expected), 1e-5, 1e-6))


def without(monkeypatch: Any, *packages: str) -> None:
    """As if packages were not installed, until `monkeypatch.undo()` installs them."""
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)


def installs(command: str) -> set[str]:
    """The packages that a command of `pip` installs, with those of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    found: set[str] = set()
    waiting = re.findall(r"[\w\"/.-]+\[\w+\]", command) or command.split()[2:]
    while waiting:
        name, _, extra = waiting.pop().partition("[")
        if extra:
            waiting += [re.split("[<>=!]", each)[0] for each in extras[extra[:-1]]]
        else:
            found.add(name)
    return found
