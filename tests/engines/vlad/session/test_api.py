"""`retape.vlad`: run, compile, the prompt, and the command line."""

import io
from pathlib import Path
from typing import Any

import pytest

import retape
from retape import vlad
from retape.cli import _main
from tests.engines.vlad.support.cases import ENGINES
from tests.engines.vlad.support.prompt import converse


@pytest.mark.parametrize("engine", ENGINES)
def test_run_returns_output_values_and_steps(engine: Any) -> None:
    text = "(define (f x) (* x (read-real))) (write-real (f 3)) (list 1 #t '()) f"
    result = vlad.run(text, engine=engine, stdin="4\n5")
    assert result.output == "12\n12\n(1 #t ())\n#<procedure f>\n"
    assert result.values[:2] == (12.0, [1.0, True, []])
    assert result.steps == (18, 7, 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_reports_are_returned_when_asked_for(engine: Any) -> None:
    text = "(define (f x n) (if (zero? n) x (f (sin x) (- n 1))))"
    text += "(checkpoint-*j (lambda (x) (f x 100)) 1 1)"
    plan = retape.fixed_space(snapshots=4, stage=100)
    result = vlad.run(text, engine=engine, plan=plan, report=True)
    (report,) = result.reports
    assert report.longest_stage <= 100
    assert report.peak_snapshots == 4
    assert vlad.run(text, engine=engine, plan=plan).reports == ()


def test_run_takes_paths_streams_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "double.vlad"
    path.write_text("(* 2 (read-real))")
    out = io.StringIO()
    for given in (path, str(path)):
        result = vlad.run(given, engine="interpreter", stdin=[21], stdout=out)
        assert result.values == (42.0,)
    vlad.run(path, engine="interpreter", stdin=io.StringIO("1"), stdout=out)
    assert out.getvalue() == "42\n42\n2\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fault_tells_the_calls_under_way(engine: Any) -> None:
    text = "(define (g n) (if (= n 0) (* n #f) (+ 1 (g (- n 1))))) (g 3)"
    with pytest.raises(retape.LanguageError) as caught:
        vlad.run(text, engine=engine)
    first, *_, last = str(caught.value).splitlines()
    assert first == "program:1:27: `*` takes reals, not `#f`"
    assert last.startswith("  called from program:1:")


@pytest.mark.parametrize("engine", ENGINES)
def test_input_that_is_no_number_is_told(engine: Any) -> None:
    with pytest.raises(
        retape.LanguageError, match="`read-real` read `x`, which is not a number"
    ):
        vlad.run("(read-real)", engine=engine, stdin="x")
    with pytest.raises(
        retape.LanguageError, match="at the end of the input; give more reals"
    ):
        vlad.run("(read-real)", engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_compiled_functions_are_callable_and_differentiable(engine: Any) -> None:
    module = vlad.compile(
        """
        (define (dot a b)
          (if (null? a) 0 (+ (* (car a) (car b)) (dot (cdr a) (cdr b)))))
        (define (car (cons a b)) a)
        (define (cdr (cons a b)) b)
        (define (swap p) (cons (cdr p) (car p)))
        (define (nothing) #t)
        """,
        engine=engine,
        plan=retape.logarithmic(stage=20),
    )
    assert sorted(module) == ["car", "cdr", "dot", "nothing", "swap"]
    assert len(module) == 5
    dot = module["dot"]
    assert dot([1, 2], [3, 4]) == 11.0
    assert dot.grad([1, 2], [3, 4]) == ([3.0, 4.0], [1.0, 2.0])
    assert dot.checkpointed_grad([1, 2], [3, 4]) == ([3.0, 4.0], [1.0, 2.0])
    assert module["swap"]((1, (True, 2))) == ((True, 2.0), 1.0)
    assert module["nothing"]() is True
    assert repr(dot) == "<VLAD function dot>"
    with pytest.raises(retape.LanguageError, match="`\\*` takes reals, not `#t`"):
        dot([True], [1])
    assert dot([1, 2], [3, 4]) == 11.0  # a fault leaves the module usable
    with pytest.raises(
        retape.LanguageError, match="does not have the shape of its primal"
    ):
        module["swap"].grad((1, 2))


def test_a_value_nested_to_the_left_is_handed_out_whole() -> None:
    text = "(let loop ((i 0) (x 7)) (if (= i 20000) x (loop (+ i 1) (cons x 1))))"
    (value,) = vlad.run(text, engine="interpreter").values
    depth = 0
    while isinstance(value, tuple):
        value, depth = value[0], depth + 1
    assert (value, depth) == (7.0, 20_000)


def test_what_is_no_value_of_the_language_is_refused() -> None:
    module = vlad.compile("(define (f x) x)", engine="interpreter")
    with pytest.raises(TypeError, match=r"`'a'` of type `str` is not a value"):
        module["f"]("a")
    with pytest.raises(TypeError, match="is a tuple of one"):
        module["f"]((1,))
    with pytest.raises(KeyError, match="`g` is not defined in the program"):
        module["g"]


def test_two_compiled_programs_do_not_share_their_state() -> None:
    first = vlad.compile("(define (f x) (* 2 x))")
    second = vlad.compile("(define (f x) (* 2 x))")
    assert first["f"](1) == second["f"](1) == 2.0
    del first
    assert second["f"](4) == 8.0


# the prompt


def test_the_prompt_evaluates_continues_and_recovers() -> None:
    told = converse(
        [
            "(define (f x)",
            "(* x 2))",
            "(f 3)",
            "(f #t)",
            "(g)",
            "(+ (read-real) 1)",
            "4",
        ]
    )
    assert told[2:4] == ["vlad> (f 3)", "6"]
    assert "takes reals, not `#t`" in told[5]
    assert "`g` is not bound here" in told[7]
    assert told[-3:] == ["real> 4", "5", ""]


def test_a_definition_can_be_changed_at_the_prompt() -> None:
    told = converse(["(define (f) 1)", "(define (h) (f))", "(define (f) 2)", "(h)"])
    assert told[-2] == "2"


def test_the_history_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        "builtins.input", lambda prompt: (_ for _ in ()).throw(EOFError)
    )
    assert _command() == 0
    assert (tmp_path / ".retape_vlad_history").exists()


# the command line


def _command(*arguments: str) -> int:
    return _main.main(["vlad", *arguments])


def test_the_command_runs_a_file(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.vlad"
    path.write_text("(checkpoint-*j (lambda (x) (* x x)) (read-real) 1)")
    monkeypatch.setattr("sys.stdin", io.StringIO("3"))
    arguments = ("--engine", "hybrid", "--report", "--plan", "logarithmic(stage=10)")
    assert _command(str(path), *arguments) == 0
    out = capsys.readouterr()
    assert out.out == "(9 . 6)\n"
    assert out.err.startswith("expression 1: 14 steps\n8 steps: 0 advances, 8 taped")


def test_the_command_emits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "p.vlad"
    path.write_text("(define (f x) (sin x)) (*j f 1 1)")
    assert _command(str(path), "--emit", "cps") == 0
    text = capsys.readouterr().out
    assert text.startswith("f0() =\n") and "let t.2 = sin x.1" in text
    assert _command(str(path), "--emit", "typed") == 0
    text = capsys.readouterr().out
    assert text.startswith("f1(x.d1) = ; f\n") and "= sin x.d1" in text
    assert _command(str(path), "--emit", "c") == 0
    assert "static int part_0" in capsys.readouterr().out


def test_the_command_tells_faults_and_exits_with_a_status(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "p.vlad"
    path.write_text("(+ 1 #t)")
    assert _command(str(path), "--engine", "interpreter") == 1
    assert ":1:1: `+` takes reals, not `#t`" in capsys.readouterr().err
    assert _command(str(path), "--plan", "best") == 2
    assert "`best` is not a plan. Write the call of one of" in capsys.readouterr().err
    assert _command("--emit", "c") == 2
    assert "name the FILE too" in capsys.readouterr().err
