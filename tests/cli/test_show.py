"""`retape show`: a function of a file, and what is refused."""

import json
import textwrap

import pytest

from retape.cli import main

FILE = """
import jax, jax.numpy as jnp
from beside import FACTOR

def halve(x):
    return jnp.sum(jax.lax.while_loop(lambda x: x[0] > 1, lambda x: FACTOR * x, x))

def scaled(x, n):
    return n * jnp.sum(x)

NUMBER = 3
"""


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside.py").write_text("FACTOR = 0.5\n")
    (tmp_path / "model.py").write_text(textwrap.dedent(FILE))
    return tmp_path / "model.py"


def test_a_function_of_a_file_is_shown_after_every_pass(where, capsys):
    assert main(["show", f"{where}:halve", "f32[4]"]) == 0
    out = capsys.readouterr().out
    passes = [line[3:] for line in out.splitlines() if line.startswith("== ")]
    assert passes[0] == "traced" and passes[-1] == "share_cotangents"
    assert "f32[4]* = mul 0.5 " in out


def test_one_pass_alone_is_shown(where, capsys):
    assert main(["show", f"{where}:halve", "f32[4]", "--only", "allocate"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["operand", "0", "f32[4]*", "a"]
    assert "==" not in out


def test_numbers_are_arguments_too(where, capsys):
    assert main(["show", f"{where}:scaled", "f64[2,3]", "3"]) == 0
    assert "program(a: f" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_file.py:f", "0.5"], "`no_file.py` is not a file, and cannot be imported"),
        (["halve", "0.5"], "`halve` names no function: write FILE:FUNCTION"),
        (["{file}:nothing", "0.5"], "defines no function `nothing`"),
        (["{file}:NUMBER", "0.5"], "defines no function `NUMBER`"),
        (["{file}:halve", "f32(4)"], "`f32(4)` is neither the type of an array"),
        (
            ["{file}:halve", "3"],
            "`3` is a whole number, and the gradient is taken with r",
        ),
        (["{file}:halve", "f99[4]"], "there is no element type float99"),
        (["{file}:halve", "f32[4]", "--only", "x"], "`--only x` is not a pass"),
    ],
)
def test_what_cannot_be_shown_is_refused(where, arguments, said, capsys):
    assert main(["show", *(a.format(file=where) for a in arguments)]) == 1
    assert said in capsys.readouterr().err


def test_the_passes_are_an_object_of_json(where, capsys):
    assert main(["show", f"{where}:halve", "f32[4]", "--json"]) == 0
    passes = json.loads(capsys.readouterr().out)
    for name in ("traced", "linearize"):
        assert main(["show", f"{where}:halve", "f32[4]", "--only", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {name: passes[name]}
