"""Random Python functions, to be compiled and compared with what Python does."""

import importlib.util
import random
from pathlib import Path
from typing import Any


class FloatWriter:
    """Writes one random function of two floats and an int."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.floats = ["x", "y", "s"]
        self.ints = ["n", "k"]
        self.loops = 0

    def text(self, name: str) -> str:
        self.lines = [f"def {name}(x, y, n):", "    s, k = x, 1", "    t = (y, s)"]
        self.lines += ["    def g(a, b=2.0):", "        return a * b + x"]
        self.block(1, 4, False)
        self.line(1, "return s, k, t[0], t[1]")
        number = name.removeprefix("f")
        self.line(0, f"def first{number}(x, y):")
        self.line(1, f"return {name}(x, y, 3)[0]")
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def real(self, depth: int = 2) -> str:
        pick = self.random.choice
        if depth == 0:
            return pick([*self.floats, *self.ints, "0.5", "-1.25", "3"])
        a, b = self.real(depth - 1), self.real(depth - 1)
        return pick(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"(0.25 * {a} * {b})",
                f"({a} / (2.0 + math.cos({b})))",
                f"math.sin({a})",
                f"abs({a})",
                f"min({a}, {b})",
                f"max({a}, 0.1, {b})",
                f"(-{a})",
                f"({a} if {self.test()} else {b})",
                f"g({a})",
                f"g({a}, b={b})",
                f"(lambda q, z={a}: q - z)({b})",
                f"({a} % 3.0)",
                f"math.exp(-abs({a}))",
                f"math.sqrt(1.0 + abs({a}))",
                "t[0]",
                "t[-1]",
                f"float({self.whole()})",
            ]
        )

    def whole(self) -> str:
        a, b = self.random.choice([*self.ints, "2", "5"]), self.random.choice("123")
        return self.random.choice(
            [a, f"({a} + {b})", f"({a} * {b})", f"({a} // {b})", f"({a} % {b})"]
        )

    def test(self) -> str:
        a, b = self.real(0), self.real(0)
        return self.random.choice(
            [
                f"{a} < {b}",
                f"{a} <= {b} < 4.0",
                f"not {a} > {b}",
                f"{self.whole()} % 2 == 0",
                f"({a} < 1.0 and {b} > 0.0)",
                f"({a} > 2.0 or {b} != 1)",
            ]
        )

    def block(self, depth: int, size: int, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, size)):
            self.statement(depth, in_loop)

    def statement(self, depth: int, in_loop: bool) -> None:
        kind = self.random.randrange(12 if depth < 4 else 6)
        if kind == 0:
            self.line(depth, f"s = {self.real()}")
        elif kind == 1:
            self.line(depth, f"s += {self.real(1)}")
        elif kind == 2:
            self.line(depth, f"k = {self.whole()}")
        elif kind == 3:
            self.line(depth, f"t = ({self.real()}, s)")
        elif kind == 4:
            self.line(depth, f"s, y = {self.real(1)}, {self.real(1)}")
        elif kind == 5:
            what = "break" if self.random.random() < 0.5 else "continue"
            ends = what if in_loop else "return s, k, 0.0, y"
            self.line(depth, f"if {self.test()}:")
            self.line(depth + 1, ends)
        elif kind in (6, 7):
            self.line(depth, f"if {self.test()}:")
            self.block(depth + 1, 2, in_loop)
            if kind == 7:
                self.line(depth, "else:")
                self.block(depth + 1, 2, in_loop)
        elif kind in (8, 9):
            self.loops += 1
            i = f"i{self.loops}"
            limits = self.random.choice(["4", "n % 5", "1, 6, 2", "5, 0, -2"])
            self.line(depth, f"for {i} in range({limits}):")
            self.ints.append(i)
            self.block(depth + 1, 3, True)
            self.ints.remove(i)
        else:
            self.loops += 1
            w = f"w{self.loops}"
            self.line(depth, f"{w} = 0")
            head = "True" if kind == 10 else f"{w} < 5 and s < 100.0"
            self.line(depth, f"while {head}:")
            self.line(depth + 1, f"{w} += 1")
            self.line(depth + 1, f"if {w} > 4:")
            self.line(depth + 2, "break")
            self.block(depth + 1, 3, True)


class ArrayWriter:
    """Writes one random function of a float, a vector, a square matrix and their size.

    Nothing grows without bound but by chance, so that rounding stays rounding.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.floats = ["s", "x", "y"]
        self.arrays = ["a", "b", "c"]
        self.counters: list[str] = []
        self.loops = 0

    def text(self, name: str) -> str:
        self.lines = [f"def {name}(x, a, m, n):"]
        self.lines += ["    s, y, k = 0.1 * x, 0.3 * x, 1"]
        self.lines += ["    b, c = 0.5 * a, np.zeros(n) + x"]
        self.lines += ["    def g(q, r):", "        return q * r[0] + x"]
        self.block(1, 5)
        self.block(1, 4)
        self.line(1, "return s, y, a, m")
        self.line(0, f"def first{name.removeprefix('f')}(x, a, m, n):")
        self.line(1, f"s, y, a, m = {name}(x, a, m, n)")
        self.line(1, "return s + 0.5 * y + np.sum(a) + 0.25 * np.sum(m)")
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def index(self) -> str:
        counted = [f"{counter} % n" for counter in self.counters]
        return self.pick("0", "-1", "n - 1", "k % n", "n // 2", *counted)

    def test(self) -> str:
        a, b = self.real(0), self.real(0)
        return self.pick(f"{a} < {b}", f"{a} >= {b}", "k % 2 == 0", "n > 2")

    def array(self, depth: int = 2) -> str:
        if depth == 0:
            made = "np.ones(n)", "np.zeros(n)", "np.full(n, 0.5)"
            return self.pick(*self.arrays, f"{self.pick(*self.arrays)}.copy()", *made)
        a, b, s = self.array(depth - 1), self.array(depth - 1), self.real(0)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"(0.3 * {a} * {b})", f"({a} * {s})",
            f"({s} - {a})", f"(0.1 * {s} + {a})", f"np.sin({a})", f"np.cos({a})",
            f"np.tanh({a})", f"(-{a})", f"np.exp(-np.abs({a}))", f"np.tanh({a} ** 2)",
            f"({a} / (2.0 + np.cos({b})))", f"(m @ {a})", f"({a} @ m)",
            f"np.sqrt(1.0 + {a} * {a})", f"({a} / 2)", f"(1 / (3.0 + np.sin({a})))",
        )  # fmt: skip

    def real(self, depth: int = 2) -> str:
        v, w = self.pick(*self.arrays), self.pick(*self.arrays)
        if depth == 0:
            items = f"{v}[{self.index()}]", f"m[{self.index()}, {self.index()}]"
            return self.pick(*self.floats, "0.5", "-1.25", "3", *items)
        a, b = self.real(depth - 1), self.real(depth - 1)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"(0.25 * {a} * {b})", f"math.sin({a})",
            f"abs({a})", f"min({a}, {b})", f"(-{a})", f"math.tanh({a})",
            f"({a} if {self.test()} else {b})", f"({v} @ {w})", f"np.dot({v}, {w})",
            f"np.sum({self.array(1)})", f"{v}.sum()", "np.sum(m)", f"g({a}, {v})",
            f"float(len({v}))",
        )  # fmt: skip

    def matrix(self) -> str:
        return self.pick(
            "0.1 * (m @ m)", "m + 0.1 * m", "np.sin(m)", "m * 0.5", "0.2 * m * m",
            "m.copy()", "np.zeros((n, n))", "m - np.ones((n, n))", "-m",
        )  # fmt: skip

    def block(self, depth: int, size: int) -> None:
        for _ in range(self.random.randint(1, size)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        kind, v = self.random.randrange(12 if depth < 4 else 7), self.pick(*self.arrays)
        if kind == 0:
            self.line(depth, f"s = math.sin({self.real()})")
        elif kind == 1:
            self.line(depth, f"s += 0.1 * {self.real(1)}")
        elif kind == 2:
            self.line(depth, f"{v} = {self.array()}")
        elif kind == 3:
            self.line(depth, f"{v} = {v} + 0.1 * {self.array(1)}")
        elif kind == 4:
            self.line(depth, f"m = {self.matrix()}")
        elif kind == 5:
            w = self.pick(*self.arrays)
            self.line(depth, f"{v}, y = {v}.copy(), {self.real(0)}")
            if v != w:
                self.line(depth, f"{w} = {w}.copy()")
                self.line(depth, f"{v}, {w} = {w}, {v}")
            self.line(depth, f"{v}[{self.index()}] = {self.real(1)}")
            self.line(depth, f"{v}[{self.index()}] {self.pick(*'+-*')}= {self.real(0)}")
        elif kind == 6:
            self.line(depth, "m = m.copy()")
            self.line(depth, f"m[{self.index()}, {self.index()}] = {self.real(1)}")
        elif kind == 7:
            self.line(depth, f"if {self.test()}:")
            self.block(depth + 1, 2)
            self.line(depth, "else:")
            self.block(depth + 1, 2)
        else:
            self.loop(depth, kind)

    def loop(self, depth: int, kind: int) -> None:
        self.loops += 1
        name = f"i{self.loops}"
        if kind == 8:
            self.line(depth, f"{name} = 0")
            self.line(depth, f"while {name} < 3 and s < 50.0:")
            self.line(depth + 1, f"{name} += 1")
            self.block(depth + 1, 3)
        elif kind == 9 and len(self.arrays) > 1:
            around, over = self.arrays, self.pick(*self.arrays)
            self.line(depth, f"for {name} in {over}:")
            self.arrays = [each for each in around if each != over]
            self.floats.append(name)
            self.block(depth + 1, 2)
            self.floats.remove(name)
            self.arrays = around
        else:
            limits = self.pick("3", "n", "n % 4", "n - 1")
            self.line(depth, f"for {name} in range({limits}):")
            self.counters.append(name)
            self.block(depth + 1, 3)
            self.counters.remove(name)


def functions_of(
    folder: Path, seeds: range, writer: type[FloatWriter] | type[ArrayWriter]
) -> Any:
    """A module with the functions of some seeds, written to a folder."""
    path = folder / f"generated_{writer.__name__}_{seeds.start}.py"
    texts = [writer(seed).text(f"f{seed}") for seed in seeds]
    path.write_text("import math\nimport numpy as np\n\n" + "\n".join(texts))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
