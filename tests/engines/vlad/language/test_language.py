"""Reading and expanding: every message, with its place, and text that is no program."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retape import LanguageError, vlad
from tests.engines.vlad.support.prompt import converse
from tests.engines.vlad.support.seams import program_of

FAULTS = [
    ("(f", "1:1", "this `(` is never closed; write the missing `)`"),
    ("#| a #| b |# (f", "1:1", "this `#|` is never closed; write the missing `|#`"),
    ("(f #;)", "1:4", "`#;` comments out the datum after it"),
    ("1/0", "1:1", "`1/0` begins like a number but is not one"),
    ("(let (((car x) 1)) x)", "1:8", "a parameter is a variable, a constant"),
    ("(letrec (((cons f g) 1)) 1)", "1:11", "`letrec` binds names of functions"),
    ("(f [1 2)", "1:8", "`)` closes the `[` of line 1; write `]`"),
    (")", "1:1", "this `)` closes nothing"),
    ("'", "1:1", "a quote is followed by a datum"),
    ("(')", "1:2", "a quote is followed by a datum"),
    ("'( . 1)", "1:4", "a dot stands between the last two data of a list"),
    (".", "1:1", "a dot stands between the last two data of a list"),
    ("'(1 . )", "1:7", "a datum follows a dot"),
    ("'(1 . 2 3)", "1:9", "only one datum may follow a dot"),
    ("'(1 . 2 . 3)", "1:9", "a list has at most one dot"),
    ("#x", "1:1", "`#x` is neither a number, a name, `#t` nor `#f`"),
    ("#(1 2)", "1:1", "a vector is printed as `#(...)` but cannot be written; make"),
    ("1x", "1:1", "`1x` begins like a number but is not one"),
    ('"text"', "1:1", "the language has no strings"),
    ('"', "1:1", '`"` is neither a number'),
    (
        "\n (+ 1 y)",
        "2:7",
        "`y` is not bound here; define it above, or bind it with `let`",
    ),
    ("()", "1:1", "an empty list is written `'()`"),
    ("(1 . 2)", "1:1", "an expression has no dot"),
    ("if", "1:1", "this word is reserved and is no variable"),
    ("(if 1 2)", "1:1", "`(if 1 2)`: write `(if test then else)`, all three"),
    ("(quote)", "1:1", "`quote` takes one datum"),
    ("'x", "1:2", "a quoted name is not a value"),
    ("(lambda (x))", "1:1", "write `(lambda (p ...) body)`"),
    ("(lambda x x)", "1:1", "the parameters of `lambda` are a list"),
    ("(lambda (x x) x)", "1:12", "this name is bound twice here"),
    ("(lambda (if) 1)", "1:10", "this word is reserved; rename the variable"),
    ("(lambda ((car x)) 1)", "1:10", "a parameter is a variable, a constant"),
    ("(lambda (x) (define (f) 1))", "1:1", "a body ends in an expression"),
    ("(lambda (x) 1 2)", "1:15", "a body is definitions and then one expression"),
    ("(let ((x 1) (x 2)) x)", "1:14", "this name is bound twice here"),
    ("(let (x) x)", "1:7", "a binding is `(name e)`"),
    ("(let x)", "1:1", "write `(let x ((name e) ...) body)`"),
    ("(let ((x 1)))", "1:1", "write `(let ((name e) ...) body)`"),
    ("(let 5 x)", "1:1", "write `(let ((name e) ...) body)`"),
    (
        "(letrec ((x 1)) x)",
        "1:13",
        "`x` is defined as something other than `(lambda ...)`",
    ),
    ("(cons 1)", "1:1", "`cons` takes two expressions"),
    ("(cond)", "1:1", "write `(cond (test e) ... (else e))`"),
    ("(cond (1 2))", "1:7", "the last clause of `cond` begins with `else`"),
    ("(cond 5 (else 1))", "1:7", "write `(cond (test e) ... (else e))`"),
    ("(+ 1 (define (f) 1))", "1:6", "a definition stands at top level"),
    ("(+ 1 (else 1))", "1:6", "`else` begins the last clause of a `cond`"),
    ('(+ 1 (include "x"))', "1:6", "`include` stands at top level"),
    ("(define x 5)", "1:1", "`x` is defined as something other than `(lambda"),
    ("(define (f))", "1:1", "write `(define (f p ...) body)`"),
    ("(define (5 x) x)", "1:1", "write `(define (f p ...) body)`"),
    ("(define (if x) x)", "1:10", "this word is reserved; rename the function"),
    ("(define (f) 1) (define (f) 2)", "1:16", "`f` is already defined at program:1:1"),
    ("(sin 1) (define (sin x) x)", "1:9", "`sin` is defined after an expression"),
    ("(include nothing)", "1:1", 'write `(include "path")`'),
    ('(include "no-such-file")', "1:1", "cannot be read (No such file or directory)"),
    ("(define (f) (g)) (f) (define (g) 1)", "1:14", "`g` is not bound here"),
    ("(define (f) (g))", "1:14", "`g` is not bound here"),
]


@pytest.mark.parametrize(("text", "place", "message"), FAULTS)
def test_faults_are_placed_and_explained(text: str, place: str, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        program_of(text, "program")
    told = str(caught.value)
    assert told.startswith(f"program:{place}: ")
    assert message in told
    assert told.splitlines()[-1].strip() == "^"


def test_the_caret_stands_below_the_fault() -> None:
    with pytest.raises(LanguageError) as caught:
        program_of("(define (f x) (* x y))\n(f 1)", "square.vlad")
    assert str(caught.value) == (
        "square.vlad:1:20: `y` is not bound here; define it above, or bind it with "
        "`let`\n  (define (f x) (* x y))\n                     ^"
    )


def test_kinds_of_faults_are_told_apart() -> None:
    with pytest.raises(LanguageError):
        program_of("(", "p")
    with pytest.raises(LanguageError):
        program_of("(if)", "p")


def test_nesting_has_a_limit_and_a_message() -> None:
    deep = "(" * 1001
    with pytest.raises(LanguageError, match="nested more than 1000 deep"):
        program_of(deep)
    fine = "(- 1 " * 900 + "1" + ")" * 900
    assert len(program_of(fine, "p").expressions) == 1


def test_data_are_printed_back() -> None:
    shown = vlad.run("'((1 . 2) #t -0.5 [3])", engine="interpreter").output
    assert shown == "((1 . 2) #t -0.5 (3))\n"


def test_comments_and_blank_text_are_no_program() -> None:
    text = " ; nothing (\n\n #| (a #| (b |# |# #;(f #;(g) x)"
    assert program_of(text, "p").expressions == ()


def test_an_included_file_needs_no_extension(tmp_path: Path) -> None:
    (tmp_path / "lib.vlad").write_text("(define (sq x) (* x x))")
    (tmp_path / "main.vlad").write_text('(include "lib") (include "lib.vlad") (sq 3)')
    assert len(program_of(tmp_path / "main.vlad").expressions) == 1


def test_included_definitions_are_seen(tmp_path: Path) -> None:
    (tmp_path / "lib.vlad").write_text("(define (sq x) (* x x))")
    (tmp_path / "main.vlad").write_text(
        '(include "lib.vlad") (include "lib.vlad") (sq 3)'
    )
    program = program_of(tmp_path / "main.vlad")
    assert list(program.definitions) == ["sq"]
    assert len(program.expressions) == 1


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.vlad").write_text('(include "b.vlad")')
    (tmp_path / "b.vlad").write_text('(include "a.vlad")')
    with pytest.raises(LanguageError, match="includes itself; remove one include"):
        program_of(tmp_path / "a.vlad")


def test_a_session_with_a_fault_stays_as_it_was() -> None:
    told = converse(["(define (f) 1)", "(define (g) 2) (h)", "(f)", "(g)"])
    answers = [line for line in told if line and not line.startswith("vlad> ")]
    assert ["is not bound here" in line for line in answers] == [True, False, True]
    assert answers[1] == "1"


def test_a_missing_file_is_told() -> None:
    with pytest.raises(LanguageError, match=r"`no\.vlad` cannot be read"):
        vlad.run("no.vlad")


TOKENS = st.sampled_from(
    "( ) [ ] ' . x y 1 -2.5 #t #f lambda let let* letrec if cond else define cons "
    'cons* list quote and or include f + car ; " ` #; #| |# 1/2'.split()
    + ["\n"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(TOKENS, max_size=30))
def test_malformed_text_is_a_language_error_or_a_program(tokens: list[str]) -> None:
    try:
        program_of(" ".join(tokens), "fuzz")
    except LanguageError as error:
        assert "fuzz:" in str(error)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_characters_are_a_language_error_or_a_program(text: str) -> None:
    try:
        program_of(text, "fuzz")
    except LanguageError as error:
        assert str(error)
