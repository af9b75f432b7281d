"""Reading and expanding: every message, with its place, and text that is no program."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retape import LanguageError, vlad
from tests.engines.vlad.support.cases import read_faults
from tests.engines.vlad.support.prompt import converse
from tests.engines.vlad.support.seams import program_of


@pytest.mark.parametrize(("text", "place", "message"), read_faults())
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


def test_included_definitions_are_seen_once_with_an_extension_or_without(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib.vlad").write_text("(define (sq x) (* x x))")
    (tmp_path / "main.vlad").write_text('(include "lib") (include "lib.vlad") (sq 3)')
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
