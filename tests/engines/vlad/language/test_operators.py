"""The table of operators: one row makes an operator, and nothing else names it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import retape
from tests.engines.vlad.support.seams import NEW_ROW, OPERATORS, table_of

PART = Path(retape.__file__).parent / "engines" / "vlad"
TABLE = "operators/_table.py"

SIGNS = {*"+ - * / = < > <= >=".split()}
IDEAS: dict[str, set[str]] = {
    "language/_binding_forms.py": {"cons"},  # read from a program's text
    # what Python and NumPy call functions, some of which are ours, too
    "python/expressions/_library_calls.py": {"log", "tanh", "erf", "abs", "min", "max"}
    | {"sin", "cos"},
    "python/expressions/_lists.py": {"min", "max"},
    "python/library/_table.py": {"abs", "asin", "acos", "min", "max", "floor", "atan"}
    | {"erf", "log"},
    # words that mean something else
    "operators/_row.py": {"real"},
    "values/_versioned_arrays.py": {"log"},
}
"""Modules in which an operator's name is a word of another language."""

ABOUT_SIGNS = {
    "language/_program.py",  # of the VLAD that it writes
    "operators/_partials.py",
    "ir/_c_text.py",  # of C
    # the ends of what is shown, as `<native function f>`
    *("values/_values.py", "values/_versioned_arrays.py", "session/_module.py"),
    *("call/_function.py", "read/_types.py", "statements/_instance.py"),
}
"""And where a sign of arithmetic is one."""


def _named(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = {n.value for n in nodes if isinstance(n, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and text in OPERATORS}


def _allowed(path: str) -> set[str]:
    found = {
        name for end, names in IDEAS.items() if path.endswith(end) for name in names
    }
    return found | (SIGNS if path.endswith(tuple(ABOUT_SIGNS)) else set())


def test_only_the_table_and_modules_about_an_operator_name_it() -> None:
    paths = {path.relative_to(PART).as_posix(): path for path in PART.rglob("*.py")}
    named = {name: _named(path) for name, path in paths.items() if name != TABLE}
    more = {name: sorted(found - _allowed(name)) for name, found in named.items()}
    assert {name: found for name, found in more.items() if found} == {}
    assert _named(PART / TABLE) == {*OPERATORS}


NEW_OPERATOR = """
from retape import vlad
text = '(cbrt 27) (*j cbrt 8 1) (checkpoint-*j cbrt 8 1) (j* cbrt -8 1)'
text += ' (*j (lambda (x) (let (((cons a b) (*j cbrt x 1))) b)) 8 1)'
result = vlad.run(text, engine=ENGINE)
print(repr(result.values))
"""
NEW_FUNCTIONS = """
import math, numpy
from retape import native
def scalar(x):
    s = 0.0
    for i in range(5):
        s = s + math.cbrt(x + i)
    return s
def whole(a):
    return numpy.sum(numpy.cbrt(a) * a)
a = numpy.array([1.0, 8.0, 27.0])
print(repr((native.grad(scalar)(8.0), native.grad(whole)(a).tolist())))
"""


def _said(script: str, folder: Path) -> object:
    path = folder / "script.py"
    path.write_text(NEW_ROW + script)
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


@pytest.mark.slow("compiled")
@pytest.mark.parametrize("engine", ["interpreter", "hybrid", "compiled"])
def test_a_new_operator_is_one_row(engine: str, tmp_path: Path) -> None:
    value, reverse, checkpointed, forward, second = _said(  # type: ignore[misc]
        NEW_OPERATOR.replace("ENGINE", repr(engine)), tmp_path
    )
    assert value == pytest.approx(3.0, rel=1e-15)
    assert reverse == checkpointed == (2.0, pytest.approx(1 / 12, rel=1e-15))
    assert forward == (-2.0, pytest.approx(1 / 12, rel=1e-15))
    # the second derivative of the third power's inverse
    assert second == (
        pytest.approx(1 / 12, rel=1e-15),
        pytest.approx(-2 / 9 * 8.0 ** (-5 / 3), rel=1e-14),
    )


@pytest.mark.slow
def test_python_functions_and_whole_arrays_have_a_new_operator(
    tmp_path: Path,
) -> None:
    scalar, whole = _said(NEW_FUNCTIONS, tmp_path)  # type: ignore[misc]
    slopes = [(8.0 + i) ** (-2 / 3) / 3 for i in range(5)]
    assert scalar == pytest.approx(sum(slopes), rel=1e-14)
    wanted = [4 / 3 * x ** (1 / 3) for x in (1.0, 8.0, 27.0)]
    assert whole == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (("1.0 / c",), "neither an operand"),
        (("b",), "neither an operand"),
        (("gamma(a)",), "nor a function that has a row"),
        (("sqrt(a",), "never closed"),
    ],
)
def test_a_partial_that_cannot_be_is_told_when_the_table_is_made(
    by: tuple[str, ...], says: str
) -> None:
    with pytest.raises((ValueError, SyntaxError), match=says):
        table_of(name="new", c="new(a)", python=abs, by=by)
