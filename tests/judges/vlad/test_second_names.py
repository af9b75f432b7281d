"""Each construct that gives an array a second name, wherever it stands.

Python would show a change under both names. A compiled function does, too, or is
refused, and is right once the advice of the refusal has been followed.
"""

import ast
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from retape import native
from tests.judges.pairwise import dealt
from tests.judges.vlad.judging import loaded, right_or_refused

CONSTRUCTS: dict[str, tuple[str, str]] = {
    "assignment": ("c = b", "c[0]"),
    "annotation": ("c: object = b", "c[0]"),
    "two targets": ("c = d = b", "c[0]"),
    "tuple of targets": ("c, s = b, x", "c[0]"),
    "swap": ("b, c = c, b", "c[0]"),
    "both of one": ("b, c = b, b", "c[0]"),
    "star": ("c, *_ = b, x", "c[0]"),
    "tuple": ("t = (b, x)", "t[0][0]"),
    "unpacked tuple": ("t = (b, x); c, s = t", "c[0]"),
    "item of a tuple": ("c = (b, x)[0]", "c[0]"),
    "choice": ("c = b if n > 1 else c", "c[0]"),
    "choice of two": ("c = d if n > 9 else b", "c[0]"),
    "and": ("c = n > 1 and b", "c[0]"),
    "walrus": ("s = (c := b)[1]", "c[0]"),
    "comprehension": ("c = [b for _ in (1,)][0]", "c[0]"),
    "call": ("c = same(b)", "c[0]"),
    "call by name": ("c = same(a=b)", "c[0]"),
    "tuple of a call": ("c, s = pair(b, x)", "c[0]"),
    "method": ("c = b.view()", "c[0]"),
    "row": ("c = b[:]", "c[0]"),
    "default of a def": ("def g(i, k=b): return k[i]", "g(0)"),
    "default of a lambda": ("g = lambda i, k=b: k[i]", "g(0)"),
    "tuple in a default": ("g = lambda i, k=(b, x): k[0][i]", "g(0)"),
    "capture of a def": ("def g(i): return b[i]", "g(0)"),
    "capture of a lambda": ("g = lambda i: b[i]", "g(0)"),
    "capture, called": ("g = lambda: b\nc = g()", "c[0]"),
    "capture of two that call": (
        "def g(i): return b[i] if i == 0 else h(i - 1)\n"
        "def h(i): return g(i) if i == 0 else x",
        "h(1)",
    ),
    "lambda, called": ("c = (lambda q: q)(b)", "c[0]"),
    "for target": ("for c in (b,): s = x", "c[0]"),
    "with": ("with given(b) as c: s = x", "c[0]"),
    "augmented tuple": ("t = (x,); t += (b,)", "t[1][0]"),
}

MORE: dict[str, tuple[str, str]] = {
    "slice": ("c = b[:1]", "c[0]"),
    "row of a table": ("c = b.reshape(1, 2)[0]", "c[0]"),
    "transpose": ("c = b.T", "c[0]"),
    "ravel": ("c = b.ravel()", "c[0]"),
    "slice in a tuple": ("t = (b[:1], x)", "t[0][0]"),
    "choice of slices": ("c = b[:1] if n > 1 else b[1:]", "c[0]"),
    "slice from a call": ("c = beginning(b)", "c[0]"),
    "slice in a default": ("g = lambda i, k=b[:1]: k[i]", "g(0)"),
    "row of a loop": ("for c in b.reshape(1, 2): s = x", "c[0]"),
    "list": ("q = [b]", "q[0][0]"),
    "item of a list": ("q = [b]; c = q[0]", "c[0]"),
    "list from a call": ("q = listed(b)", "q[0][0]"),
    "longer comprehension": ("q = [b for _ in range(2)]", "q[1][0]"),
    "dict": ("q = {'a': b}", "q['a'][0]"),
    "item of a dict": ("q = {'a': b}; c = q['a']", "c[0]"),
    "record": ("q = Pair(b, x)", "q.a[0]"),
    "field of a record": ("q = Pair(b, x); c = q.a", "c[0]"),
    "list of two names": ("q = [x]; r = q; q[0] = x * x", "r[0]"),
    "list that grows": ("q = [x]; r = q; q.append(x * x)", "sum(r)"),
    "dict of two names": ("q = {'a': x}; r = q; r['a'] = x * x", "q['a']"),
}
"""Those that few places allow: the names are new, or what they hold is of a kind."""

WRITES = {
    "item": "b[0] = x * x",
    "item, augmented": "b[0] += x * x",
    "item in a tuple": "b[0], s = x * x, x",
    "item of a swap": "b[0], b[1] = b[1] + x, b[0]",
    "array, augmented": "b += x * x",
    "array, times": "b *= x",
    "by the other name": "c[0] = x * x",
    "in an if": "if n > 1:\n    b[0] = x * x",
    "in a loop": "for j in range(2):\n    b[j] = x * x",
}

PLACES = {
    "straight on": "{construct}\n{write}",
    "for": "for i in range(n):\n    {construct}\n{write}",
    "for, of one turn": "for i in range(n - 2):\n    {construct}\n{write}",
    "while": "i = 0\nwhile i < n:\n    {construct}\n    i += 1\n{write}",
    "loop in a loop": "for i in range(n):\n    for k in range(2):\n"
    "        {construct}\n{write}",
    "if in a loop": "for i in range(n):\n    if i == 1:\n        {construct}\n{write}",
    "before continue": "for i in range(n):\n    if i == 1:\n        {construct}\n"
    "        continue\n    s = x\n{write}",
    "before break": "for i in range(n):\n    {construct}\n    if i == 1:\n"
    "        break\n{write}",
    "before the write of a turn": "for i in range(n):\n    {write}\n    {construct}",
    "if": "if n > 1:\n    {construct}\n{write}",
    "else": "if n < 1:\n    s = x\nelse:\n    {construct}\n{write}",
    "written in a later loop": "{construct}\nfor i in range(2):\n    {write}",
    "over an array": "for s in a:\n    {construct}\n{write}",
}

FEW = ("straight on", "written in a later loop", "over an array")

HEAD = """
from dataclasses import dataclass

import numpy as np
from contextlib import nullcontext as given


def same(a):
    return a


def pair(a, x):
    return a, x


def beginning(a):
    return a[:1]


def listed(a):
    made = []
    made.append(a)
    return made


@dataclass
class Pair:
    a: np.ndarray
    x: float

"""


def _indented(text: str, by: str) -> str:
    return text.replace("\n", "\n" + by)


def program(name: str, construct: str, write: str, place: str) -> str:
    """A function with a construct and a write at a place."""
    made, read = (CONSTRUCTS | MORE)[construct]
    text = PLACES[place]
    for key, part in (("construct", made), ("write", WRITES[write])):
        found = re.search(r"( *)\{" + key + r"\}", text)
        assert found is not None
        text = text.replace(f"{{{key}}}", _indented(part, found[1]))
    lines = [
        f"def {name}(x, n):",
        "    a, b, c, d = np.full(2, x), np.zeros(2), np.ones(2), np.full(2, 0.5 * x)",
        "    s, t = x, (c, x)",
        f"    {_indented(text, '    ')}",
        f"    return {read} + 10.0 * b[0] + 100.0 * b[1] + s",
    ]
    return "\n".join(lines) + "\n"


ADVICE = re.compile(r"write `(\w+) = \1\.copy\(\)` before it")
INSTEAD = re.compile(r"write `(\w+) = \1 \.\.\.` without `=` in the operator")


def followed(text: str, error: Exception | None) -> str | None:
    """The text with what a refusal advises; `None` where it advises something else."""
    if not isinstance(error, native.CompileError):
        return None
    lines, message = text.splitlines(), str(error)
    copied, plainly = ADVICE.search(message), INSTEAD.search(message)
    where = error.where
    assert where is not None
    at = int(message.split(":")[1]) - 1
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    if copied:
        name = copied[1]
        lines.insert(at, f"{indent}{name} = {name}.copy()")
    elif plainly:
        node = ast.parse(lines[at].strip()).body[0]
        assert isinstance(node, ast.AugAssign)
        value = ast.BinOp(ast.parse(plainly[1]).body[0].value, node.op, node.value)  # type: ignore[attr-defined]
        lines[at] = f"{indent}{plainly[1]} = {ast.unparse(value)}"
    else:
        return None
    return "\n".join(lines) + "\n"


HALVES = tuple(PLACES)[::2], tuple(PLACES)[1::2]


@pytest.mark.parametrize(
    ("construct", "places"),
    [*dealt([*CONSTRUCTS], HALVES), *((each, FEW) for each in MORE)],
)
def test_a_second_name_sees_a_change_or_is_refused(
    construct: str, places: Sequence[str], tmp_path: Path
) -> None:
    """And what is refused is right once its advice has been followed.

    A construct meets half of the places on each change, and all of them at night;
    a place meets all writes.
    """
    number = itertools.count()
    constructs = [*CONSTRUCTS, *MORE]
    turn = itertools.cycle(WRITES)
    writes = itertools.islice(turn, constructs.index(construct), None)
    for place in places:
        for write in itertools.islice(writes, 1 if construct in CONSTRUCTS else 2):
            text = HEAD + program("f", construct, write, place)
            for _ in range(4):
                module = loaded(tmp_path, f"made_{next(number)}", text)
                error = right_or_refused(module.f, (1.5, 3), by=(0,))
                changed = followed(text, error)
                if changed is None:
                    break
                text = changed
            else:
                raise AssertionError(f"{error} after its advice was followed:\n{text}")
