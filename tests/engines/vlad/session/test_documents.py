"""The documentation and the examples do what they say."""

import re
from pathlib import Path

import pytest

from retape import vlad

ROOT = Path(__file__).parents[4]
DOCS = sorted((ROOT / "docs" / "vlad").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples" / "vlad").glob("*.vlad"))
PAIR = re.compile(r"```vlad\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)
PAIRS = [pair for path in DOCS for pair in PAIR.findall(path.read_text())]


def test_there_are_documents_with_programs() -> None:
    assert DOCS
    assert len(PAIRS) >= 3
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize(("program", "output"), PAIRS)
def test_programs_in_the_documents_print_what_stands_below_them(
    program: str, output: str
) -> None:
    assert vlad.run(program, engine="interpreter").output == output


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(path: Path) -> None:
    result = vlad.run(path, engine="interpreter", stdin="4 5 3")
    assert result.values


def test_nine_ways_to_a_second_derivative_agree() -> None:
    path = ROOT / "examples" / "vlad" / "nested.vlad"
    values = vlad.run(path, engine="hybrid").values
    assert [x for row in values for x in row] == pytest.approx(
        [-1.6911249106662178] * 9, rel=1e-12
    )


def test_the_example_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    source = (ROOT / "examples" / "vlad" / "from_python.py").read_text()
    exec(compile(source, "from_python.py", "exec"), {"__name__": "__main__"})
    first, second = capsys.readouterr().out.splitlines()
    assert "by start angle -3.965624" in first
    assert second == "by finite differences -3.965624"
