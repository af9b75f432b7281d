"""`retape show`: a function of a file, and what is refused."""

import json

from retape.cli import main


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


def test_the_passes_are_an_object_of_json(where, capsys):
    assert main(["show", f"{where}:halve", "f32[4]", "--json"]) == 0
    passes = json.loads(capsys.readouterr().out)
    for name in ("traced", "linearize"):
        assert main(["show", f"{where}:halve", "f32[4]", "--only", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {name: passes[name]}


def test_what_the_program_prints_is_none_of_the_passes(tmp_path, capsys):
    file = tmp_path / "prints.py"
    file.write_text("print('on the way')\nf = lambda x: print(x) or (x * x).sum()\n")
    assert main(["show", f"{file}:f", "f32[4]", "--json"]) == 0
    said = capsys.readouterr()
    assert "traced" in json.loads(said.out) and "on the way" in said.err
