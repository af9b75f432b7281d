"""Random Python functions, to be compiled and compared with what Python does.

A kind of function is a few tables of templates, in which `{name}` stands for what the
method of that name writes: an expression, a test, a block of statements.
"""

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judges.vlad.judging import loaded


@dataclass(frozen=True)
class Kind:
    """What functions of a kind are made of: statements without blocks, and with."""

    frame: str
    leaves: Sequence[str]
    reals: Sequence[str]
    tests: Sequence[str]
    simple: Sequence[str]
    compound: Sequence[str]
    limits: Sequence[str]
    names: Sequence[str]


BRANCHES = "if {test}:\n    {block}", "if {test}:\n    {block}\nelse:\n    {block}"
COUNTED = "for {new} in range({limit}):\n    {loop}"
UNTIL = "{new} = 0\nwhile {i} < 4 and s < 50.0:\n    {i} += 1\n    {loop}"
BROKEN = (
    "{new} = 0\nwhile True:\n    {i} += 1\n    if {i} > 4:\n        break\n    {loop}"
)

NUMBERS = Kind(
    frame="""
def f#(x, y, n):
    s, k = x, 1
    t = (y, s)
    def g(a, b=2.0):
        return a * b + x
    {block}
    return s, k, t[0], t[1]
def first#(x, y):
    return f#(x, y, 3)[0]
""",
    leaves=("{number}", "{number}", "{counter}", "0.5", "-1.25", "3"),
    reals=(
        "({real} + {real})", "({real} - {real})", "(0.25 * {real} * {real})",
        "({real} / (2.0 + math.cos({real})))", "math.sin({real})", "abs({real})",
        "min({real}, {real})", "max({real}, 0.1, {real})", "(-{real})",
        "({real} if {test} else {real})", "g({real})", "g({real}, b={real})",
        "(lambda q, z={real}: q - z)({real})", "({real} % 3.0)",
        "math.exp(-abs({real}))", "math.sqrt(1.0 + abs({real}))", "t[0]", "t[-1]",
        "float({whole})",
    ),
    tests=(
        "{leaf} < {leaf}", "{leaf} <= {leaf} < 4.0", "not {leaf} > {leaf}",
        "{whole} % 2 == 0", "({leaf} < 1.0 and {leaf} > 0.0)",
        "({leaf} > 2.0 or {leaf} != 1)",
    ),
    simple=(
        "s = {real}", "s += {small}", "k = {whole}", "t = ({real}, s)",
        "s, y = {small}, {small}", "if {test}:\n    {end}",
    ),
    compound=(*BRANCHES, COUNTED, COUNTED, UNTIL, BROKEN),
    limits=("4", "n % 5", "1, 6, 2", "5, 0, -2"),
    names=("x", "y", "s"),
)  # fmt: skip

ARRAYS = Kind(
    frame="""
def f#(x, a, m, n):
    s, y, k = 0.1 * x, 0.3 * x, 1
    b, c = 0.5 * a, np.zeros(n) + x
    def g(q, r):
        return q * r[0] + x
    {block}
    {block}
    return s, y, a, m
def first#(x, a, m, n):
    s, y, a, m = f#(x, a, m, n)
    return s + 0.5 * y + np.sum(a) + 0.25 * np.sum(m)
""",
    leaves=(
        "{number}", "{number}", "{number}", "0.5", "-1.25", "3", "{vector}[{index}]",
        "m[{index}, {index}]",
    ),
    reals=(
        "({real} + {real})", "({real} - {real})", "(0.25 * {real} * {real})",
        "math.sin({real})", "abs({real})", "min({real}, {real})", "(-{real})",
        "math.tanh({real})", "({real} if {test} else {real})", "({vector} @ {vector})",
        "np.dot({vector}, {vector})", "np.sum({array})", "{vector}.sum()", "np.sum(m)",
        "g({real}, {vector})", "float(len({vector}))",
    ),
    tests=("{leaf} < {leaf}", "{leaf} >= {leaf}", "k % 2 == 0", "n > 2"),
    simple=(
        "s = math.sin({real})", "s += 0.1 * {small}", "{v} = {array}",
        "{v} = {same} + 0.1 * {array}", "m = {matrix}",
        "m = m.copy()\nm[{index}, {index}] = {small}",
        "{v}, y = {same}.copy(), {leaf}\n{w} = {other}.copy()\n"
        "{same}, {other} = {other}, {same}\n{same}[{index}] = {small}\n"
        "{same}[{index}] *= {leaf}\n{other}[{index}] -= {leaf}",
    ),
    compound=(
        BRANCHES[1], UNTIL, COUNTED, COUNTED, "for {new} in {over}:\n    {items}",
    ),
    limits=("3", "n", "n % 4", "n - 1"),
    names=("s", "x", "y"),
)  # fmt: skip

VECTORS = (
    "({array} + {array})", "({array} - {array})", "(0.3 * {array} * {array})",
    "({array} * {leaf})", "({leaf} - {array})", "(0.1 * {leaf} + {array})",
    "np.sin({array})", "np.cos({array})", "np.tanh({array})", "(-{array})",
    "np.exp(-np.abs({array}))", "np.tanh({array} ** 2)",
    "({array} / (2.0 + np.cos({array})))", "(m @ {array})", "({array} @ m)",
    "np.sqrt(1.0 + {array} * {array})", "({array} / 2)",
    "(1 / (3.0 + np.sin({array})))",
)  # fmt: skip
MATRICES = (
    "0.1 * (m @ m)", "m + 0.1 * m", "np.sin(m)", "m * 0.5", "0.2 * m * m", "m.copy()",
    "np.zeros((n, n))", "m - np.ones((n, n))", "-m",
)  # fmt: skip
"""Nothing grows without bound but by chance, so that rounding stays rounding."""


class Writer:
    """Writes one random function of a kind."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.random, self.kind = random.Random(seed), kind
        self.floats, self.ints = list(kind.names), ["n", "k"]
        self.arrays, self.chosen = ["a", "b", "c"], ["a", "b"]
        self.loops = self.depth = self.in_loops = 0
        self.left = 2  # how deep an expression may yet be

    def fill(self, templates: Sequence[str]) -> str:
        def written(found: re.Match[str]) -> str:
            part = getattr(self, found[2])()
            return found[1] + part.replace("\n", "\n" + found[1])

        return re.sub(r"( *)\{(\w+)\}", written, self.random.choice(templates))

    @contextmanager
    def within(self, left: int) -> Iterator[None]:
        before, self.left = self.left, left
        yield
        self.left = before

    # expressions

    def leaf(self) -> str:
        return self.fill(self.kind.leaves)

    def real(self) -> str:
        with self.within(self.left - 1):
            return self.leaf() if self.left < 0 else self.fill(self.kind.reals)

    def small(self) -> str:
        with self.within(1):
            return self.real()

    def array(self) -> str:
        made = "{vector}", "{vector}.copy()", "np.ones(n)", "np.full(n, 0.5)"
        with self.within(self.left - 1):
            return self.fill(made if self.left < 0 else VECTORS)

    def matrix(self) -> str:
        return self.fill(MATRICES)

    def test(self) -> str:
        return self.fill(self.kind.tests)

    def whole(self) -> str:
        some = "{counter}", "2", "({counter} + 2)", "({counter} * 3 % 11)"
        return self.fill((*some, "({counter} // 2)", "({counter} % 3)"))

    def index(self) -> str:
        return self.fill(("0", "-1", "n - 1", "k % n", "n // 2", "{counter} % n"))

    def number(self) -> str:
        return self.random.choice(self.floats)

    def counter(self) -> str:
        return self.random.choice(self.ints)

    def vector(self) -> str:
        return self.random.choice(self.arrays)

    def v(self) -> str:
        """A name of an array, and, below, one of another one."""
        self.chosen = self.random.sample(self.arrays, 2)
        return self.chosen[0]

    def same(self) -> str:
        return self.chosen[0]

    def w(self) -> str:
        return self.chosen[1]

    other = w

    # statements

    def limit(self) -> str:
        return self.random.choice(self.kind.limits)

    def end(self) -> str:
        ways = ("break", "continue") if self.in_loops else ("return s, k, 0.0, y",)
        return self.random.choice(ways)

    def block(self) -> str:
        self.depth += 1
        simple, compound = self.kind.simple, self.kind.compound
        some = (*simple, *compound) if self.depth < 4 else simple
        found = []
        for _ in range(self.random.randint(1, 3)):
            with self.within(2):
                found.append(self.fill(some))
        self.depth -= 1
        return "\n".join(found)

    def new(self) -> str:
        self.loops += 1
        return self.i()

    def i(self) -> str:
        return f"i{self.loops}"

    def loop(self) -> str:
        counter = self.i()
        self.ints.append(counter)
        self.in_loops += 1
        text = self.block()
        self.in_loops -= 1
        self.ints.remove(counter)
        return text

    def over(self) -> str:
        return self.v() if len(self.arrays) > 2 else "np.ones(n)"

    def items(self) -> str:
        """A block in which the array that is looped over is not written."""
        item, around = self.i(), self.arrays
        if len(around) > 2:
            self.arrays = [each for each in around if each != self.chosen[0]]
        self.floats.append(item)
        text = self.block()
        self.floats.remove(item)
        self.arrays = around
        return text


def functions_of(folder: Path, seeds: range, kind: Kind) -> Any:
    """A module with the functions of some seeds, written to a folder."""
    texts = [Writer(seed, kind).fill([kind.frame]) for seed in seeds]
    numbered = [t.replace("#", str(s)) for t, s in zip(texts, seeds, strict=True)]
    head = "import math\nimport numpy as np\n\n"
    return loaded(folder, f"generated_{seeds.start}", head + "\n".join(numbered))
