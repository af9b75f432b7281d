"""Generated Python functions: what is compiled does what Python does, or refuses."""

import importlib.util
import math
import random
from pathlib import Path
from typing import Any

import pytest

from retape import native


class Writer:
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


def _programs(folder: Path, seeds: range) -> Any:
    path = folder / f"generated_{seeds.start}.py"
    texts = [Writer(seed).text(f"f{seed}") for seed in seeds]
    path.write_text("import math\n\n" + "\n".join(texts))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _outcome(f: Any, args: tuple) -> Any:
    try:
        return f(*args)
    except (ZeroDivisionError, OverflowError, ValueError, native.RunError) as error:
        return "stops" if not isinstance(error, native.CompileError) else error


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    pairs = zip(a, b, strict=True)
    return all(math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-300) for x, y in pairs)


ARGUMENTS = [(0.3, -1.7, 3), (2.5, 0.0, 8)]


@pytest.mark.parametrize(
    ("engine", "seeds"),
    [("interpreter", range(150)), ("hybrid", range(150, 180)), ("compiled", range(3))],
)
def test_generated_functions_do_what_python_does(
    engine: Any, seeds: range, tmp_path: Path
) -> None:
    module = _programs(tmp_path, seeds)
    for seed in seeds:
        f = getattr(module, f"f{seed}")
        compiled = native.function(f, engine=engine)
        for args in ARGUMENTS:
            expected = _outcome(f, args)
            assert _same(_outcome(compiled, args), expected), (seed, args, expected)


def test_gradients_of_generated_functions_are_those_of_forward_mode(
    tmp_path: Path,
) -> None:
    module = _programs(tmp_path, range(200, 240))
    x, y = 0.31, -1.7
    taken = 0
    for seed in range(200, 240):
        f = getattr(module, f"first{seed}")
        if _outcome(f, (x, y)) == "stops":
            continue
        taken += 1
        gradient = native.grad(f, (0, 1), engine="interpreter")(x, y)
        for part, along in zip(gradient, ((1.0, 0.0), (0.0, 1.0)), strict=True):
            _, tangent = native.jvp(f, (x, y), along, engine="interpreter")
            assert part == pytest.approx(tangent, rel=1e-9, abs=1e-12), seed
    assert taken > 25
