"""What the command says of itself: every option, examples that run, what was meant."""

import contextlib
import io
import re
import shlex

import pytest

from retape.cli import main

COMMANDS = ["plan", "plot", "show", "vlad", "doctor"]


def help_of(*command):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        main([*command, "--help"])
    return text.getvalue()


def examples():
    """Those that need neither a pipe nor many seconds; a page runs the others."""
    texts = [help_of(), *map(help_of, COMMANDS)]
    shown = [line.strip() for text in texts for line in text.splitlines()]
    lines = [line for line in shown if line.startswith("retape ")]
    return [line for line in dict.fromkeys(lines) if "doctor" not in line]


@pytest.mark.parametrize("line", examples())
def test_an_example_of_the_help_works(line, tmp_path, monkeypatch, capsys):
    (tmp_path / "program.vlad").write_text("(* 6 7)\n")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name):
    text = help_of(name)
    usage, _, rest = text.partition("\n\n")
    options = dict(
        re.findall(r"^  (--[\w-]+)[^\n]*?\s{2,}(\S[^\n]*)", rest, re.MULTILINE)
    )
    assert options.keys() == set(re.findall(r"--[\w-]+", usage))
    assert all(len(said.split()) >= 3 for said in options.values()), options
    assert not rest.startswith("options:"), "what the command does is said first"
    assert "examples:" in rest


def test_the_bare_command_prints_its_help(capsys):
    assert main([]) == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("plann --steps 3", "plan"),
        ("doktor", "doctor"),
        ("plan segments --steps 9 --kapsule=3", "--capsule"),
        ("plan segments --steps 9 --jsson", "--json"),
    ],
)
def test_what_was_meant_is_asked(line, meant, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert f"Did you mean `{meant}`?" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("line", ["xyz", "plan --steps 3", "plan segments --steps x"])
def test_nothing_is_meant_where_nothing_is_near(line, capsys):
    with pytest.raises(SystemExit):
        main(line.split())
    said = capsys.readouterr().err
    assert "Did you mean" not in said
    assert "--help`." in said
