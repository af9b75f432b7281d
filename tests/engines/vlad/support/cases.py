"""Golden programs: what stands in `cases/`, and how output is compared."""

import math
from ast import literal_eval
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from retape import logarithmic
from retape.native import RunError
from tests.engines.vlad.support.seams import engine_of, show

CASES = Path(__file__).parent / "cases"
PROGRAMS = Path(__file__).parent / "programs"
ENGINES = ("interpreter", "hybrid", "compiled")


@dataclass(frozen=True)
class Case:
    """An expression under a file's definitions, what it prints, and its steps."""

    file: str
    index: int
    text: str
    expected: str
    steps: int | None


def read_cases(file: str) -> tuple[str, list[Case]]:
    """The definitions and the cases of a file."""
    prelude, _, rest = (CASES / file).read_text().partition("---\n")
    cases: list[Case] = []
    lines = [line for line in rest.splitlines() if line]
    for index in range(0, len(lines), 2):
        text, answer = lines[index], lines[index + 1]
        assert answer.startswith("=> "), answer
        expected, _, steps = answer[3:].partition(" ; ")
        number = int(steps) if steps else None
        cases.append(Case(file, index // 2, text, expected, number))
    return prelude, cases


def read_faults() -> list[tuple[str, str, str]]:
    """Texts that are no programs, the place of the fault, and what is said of it."""
    lines = (CASES / "malformed.faults").read_text().splitlines()
    told = [answer[3:].partition(" ") for answer in lines[1::2]]
    texts = [line.replace("\\n", "\n") for line in lines[::2]]
    return [
        (text, place, says) for text, (place, _, says) in zip(texts, told, strict=True)
    ]


def program(name: str) -> str:
    """The text of a program in `programs/`."""
    return (PROGRAMS / f"{name}.vlad").read_text()


def functions(name: str) -> tuple[str, list[tuple[str, Any]]]:
    """Functions `f0`, `f1`, ... of a program; of each a name, and an argument."""
    pieces = program(name).split("; # ")[1:]
    heads = [piece.partition("\n")[0].partition(": ") for piece in pieces]
    numbered = [piece.replace("@", str(i)) for i, piece in enumerate(pieces)]
    return "\n; ".join(["", *numbered]), [
        (head, literal_eval(at)) for head, _, at in heads
    ]


FILES = sorted(path.name for path in CASES.glob("*.cases"))
ALL = [case for file in FILES for case in read_cases(file)[1]]


class Bench:
    """One engine with a file's cases, and what it prints."""

    def __init__(self, file: str, name: str) -> None:
        prelude, cases = read_cases(file)
        text = "\n".join([prelude, *(case.text for case in cases)])
        self.lines: list[str] = []
        self.input = iter([float(x) for x in range(11, 31)])
        self.engine = engine_of(
            name, text, logarithmic(stage=30), read=self._read, write=self.lines.append
        )

    def _read(self) -> float | None:
        return next(self.input, None)

    def run(self, case: Case) -> tuple[str, int | None]:
        """The output of a case, its lines joined, and its steps."""
        self.lines.clear()
        if "read-real" in case.text:
            self.input = iter([float(x) for x in range(11, 31)])
        try:
            value, steps = self.engine.evaluate(case.index)
        except RunError as error:
            return f"! {error.message}", None
        self.lines.append(show(value))
        return " | ".join(self.lines), steps


@cache
def bench(file: str, name: str) -> Bench:
    return Bench(file, name)


def same_output(a: str, b: str) -> bool:
    """Equal but for the rounding of reals."""
    left = a.replace("(", " ( ").replace(")", " ) ").split()
    right = b.replace("(", " ( ").replace(")", " ) ").split()
    return len(left) == len(right) and all(
        x == y or _close(x, y) for x, y in zip(left, right, strict=True)
    )


def _close(x: str, y: str) -> bool:
    try:
        return math.isclose(float(x), float(y), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return False
