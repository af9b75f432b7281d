"""Compiled functions in other processes: found by name, or refused."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retape import LanguageError, RetapeError, UnsupportedError, fixed_space, native


@native.function
def cube(x: Any) -> Any:
    return x * x * x


def square(x: Any) -> Any:
    return x * x


compiled_square = native.function(square, engine="interpreter")
slope = native.grad(cube, plan=fixed_space(snapshots=3), engine="interpreter")


def _again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_a_decorated_function_is_itself() -> None:
    assert _again(cube) is cube
    assert copy.deepcopy({"f": cube})["f"] is cube


def test_a_function_compiled_beside_its_original_is_made_again() -> None:
    found = _again(compiled_square)
    assert found(3.0) == 9.0
    assert found.options == compiled_square.options
    assert found.__retape_function__ is square


def test_derivatives_are_made_again_with_their_plan_and_nest() -> None:
    found = _again(slope)
    assert found(2.0) == 12.0
    assert found.options == ("interpreter", fixed_space(snapshots=3))
    curvature = _again(native.grad(native.grad(square), engine="interpreter"))
    assert curvature(2.0) == 2.0
    both = _again(native.value_and_grad(square, (0,), engine="interpreter"))
    assert both(3.0) == (9.0, (6.0,))


@pytest.mark.parametrize("make", [native.function, native.grad, native.value_and_grad])
def test_what_has_no_name_is_refused(make: Any) -> None:
    def local(x: Any) -> Any:
        return x

    for f in (local, lambda x: x):
        with pytest.raises(UnsupportedError, match="define it with `def` at the top"):
            pickle.dumps(make(f))
    with pytest.raises(UnsupportedError, match="<lambda>"):
        pickle.dumps(native.grad(native.function(lambda x: x)))


OWN_PROGRAM = """
import pickle
from retape import native

@native.function
def half(x):
    return x / 2.0

def third(x):
    return x / 3.0

if __name__ == "__main__":
    made = half, native.grad(half), native.function(third), native.grad(third)
    assert pickle.loads(pickle.dumps(half)) is half
    with open("made", "wb") as file:
        pickle.dump(made, file)
"""
WORKER = """
import pickle
print([f(6.0) for f in pickle.load(open("made", "rb"))])
"""


@pytest.mark.slow
def test_a_worker_with_another_program_finds_them_in_the_first(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OWN_PROGRAM)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True)
    command = [sys.executable, "-c", WORKER]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{[3.0, 0.5, 2.0, 1.0 / 3.0]}\n"


_AT_A_PROMPT = """
import pickle, sys
from retape import native

def half(x):
    return x / 2.0

sys.stdout.buffer.write(pickle.dumps(native.grad(half)))
"""


def test_what_a_notebook_made_is_refused_where_it_is_not_known() -> None:
    there = subprocess.run(
        [sys.executable, "-c", _AT_A_PROMPT], capture_output=True, check=True
    )
    with pytest.raises(UnsupportedError, match="write it to a module, and import it"):
        pickle.loads(there.stdout)


def _error_of(call: Any) -> RetapeError:
    with pytest.raises(RetapeError) as raised:
        call()
    return raised.value


def faulty(x: Any) -> Any:
    return 1.0 / (x - x)


def listing(x: Any) -> Any:
    return {x}


@pytest.mark.parametrize("function", [faulty, listing])
def test_errors_of_a_worker_reach_who_called_it(function: Any) -> None:
    error = _error_of(lambda: native.function(function, engine="interpreter")(1.0))
    error.add_note("a note")
    found = _again(error)
    assert type(found) is type(error) and str(found) == str(error)
    assert isinstance(error, LanguageError) and isinstance(found, LanguageError)
    assert str(found.where) == str(error.where) and found.where is not None
    assert (found.message, found.__notes__) == (error.message, ["a note"])
