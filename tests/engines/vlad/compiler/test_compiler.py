"""The compiler: its passes, the checker, the C, and the cache."""

import re
import shutil
import subprocess
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

import retape
from retape import vlad
from retape.engines.vlad.compiler._pipeline import compile_program, intermediate
from retape.engines.vlad.compiler.ir._check import IllFormed, check
from retape.engines.vlad.compiler.ir._ir import (
    Call,
    Cont,
    Fun,
    FunRef,
    Jump,
    Let,
    Lit,
    Module,
    Quoted,
    Return,
    Term,
)
from retape.engines.vlad.compiler.ir._pretty import pretty
from retape.engines.vlad.compiler.load import _c_compiler as _build
from retape.engines.vlad.language._core import PConst
from retape.engines.vlad.language._diagnostics import Source, Where
from retape.engines.vlad.language._program import Session
from tests.engines.vlad.support.cases import FILES, read_cases

IGNORED = Path(__file__).parents[4] / ".gitignore"
WHERE = Where(Source("test", ""), 0)


def _intermediate(text: str) -> Module:
    return intermediate(Session().add(Source("test", text)))


def test_the_intermediate_form_of_a_call_that_returns() -> None:
    text = "(define (f x) (if (zero? x) 0 (+ 1 (f (- x 1))))) (f 3)"
    assert pretty(_intermediate(text)) == (
        "f0() =\n"
        "  tick 3\n"
        "  f1(3)\n"
        "\n"
        "f1(x.1) = ; f\n"
        "  tick 6\n"
        "  let t.2 = zero? x.1\n"
        "  if t.2\n"
        "    tick 1\n"
        "    return 0\n"
        "  else\n"
        "    tick 14\n"
        "    let t.3 = - x.1 1\n"
        "    cont k.4(v.5) =\n"
        "      tick 3\n"
        "      let t.6 = + 1 v.5\n"
        "      return t.6\n"
        "    f1(t.3) -> k.4\n"
        "\n"
        "run f0\n"
    )


def test_a_pair_that_is_taken_apart_at_once_is_never_built() -> None:
    text = "(define (swap a b) (cons b a)) (define (car (cons a b)) a) (car (swap 1 2))"
    assert "cons" not in pretty(_intermediate(text))


def test_a_named_let_needs_no_closure_and_an_escaping_function_one() -> None:
    loop = "(lambda (y) (let loop ((i 0)) (if (= i y) i (loop (+ i 1)))))"
    assert "close" not in pretty(_intermediate(f"({loop} 3)"))
    escaping = "(let ((x (read-real))) (cons (lambda (y) (+ x y)) 1))"
    assert "close" in pretty(_intermediate(escaping))


def _module(body: Term, **others: object) -> Module:
    fun = Fun(0, None, PConst(()), (), (), 0, body)
    return Module(functions={0: fun}, entries=[0], **others)  # type: ignore[arg-type]


BROKEN = [
    (Return("x"), "`x` is used where it is not bound"),
    (
        Let("x", "sin", (Lit(1.0),), 0, Let("x", "sin", (Lit(1.0),), 0, Return("x"))),
        "`x` is bound twice",
    ),
    (Jump("k", Lit(1.0)), "continuation `k` is not in scope"),
    (
        Cont("k", "v", Jump("k", "v"), Return(Lit(1.0)), WHERE),
        "continuation `k` is not in scope",
    ),
    (Call(7, (), None), "there is no function 7"),
    (Call(0, (Lit(1.0),), None), "1 values for the 0 of a function"),
    (Return(Quoted(3)), "there is no quoted datum 3"),
    (Return(FunRef(9)), "there is no function 9"),
]


@pytest.mark.parametrize(("body", "message"), BROKEN)
def test_the_checker_says_no(body: Term, message: str) -> None:
    with pytest.raises(IllFormed, match=message):
        check(_module(body))


def test_the_checker_says_no_to_an_entry_that_is_none() -> None:
    module = replace(_module(Return(Lit(1.0))), entries=[4])
    with pytest.raises(IllFormed, match="entry 4 is no function"):
        check(module)


@pytest.mark.parametrize("file", [*FILES, None])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_c_compiles_without_a_warning(
    file: str | None, compiler: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = _build.RUNTIME / "runtime.c"
    if file is not None:
        prelude, cases = read_cases(file)
        text = "\n".join([prelude, *(case.text for case in cases)])
        source = tmp_path / "program.c"
        source.write_text(compile_program(Session().add(Source(file, text))).text)
    flags = "-std=c11 -Wall -Wextra -Werror -O2 -S -o /dev/null".split()
    command = [compiler, *flags, f"-I{_build.RUNTIME}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_runtime_is_part_of_the_package() -> None:
    """Every file that a compiled program includes, none of them ignored by Git."""
    root = _build.RUNTIME
    found: set[str] = set()
    pending = [
        "runtime.c",
        "entry.c",
        "code.h",
        "untyped.h",
        "parts.h",
        "later.h",
        "apart.h",
        "apart.c",
        "typed_record.h",
    ]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            text = (root / name).read_text()
            pending.extend(re.findall(r'#include "(.*)"', text))
    assert found == {path.name for path in root.glob("*.[ch]")}
    assert root.is_relative_to(Path(retape.__file__).parent)
    parts = {*found, *root.relative_to(Path(retape.__file__).parent).parts}
    patterns = [line.strip("/") for line in IGNORED.read_text().splitlines() if line]
    assert not [p for p in patterns if any(fnmatch(part, p) for part in parts)]


def _sum_of_calls(count: int) -> str:
    total = "(f 2)"
    for i in range(count):
        total = f"(+ (* x (f {i})) {total})"
    return f"(define (f x) (if (< x 1) x (+ 1 (f (- x 1))))) (define (g x) {total})"


def test_frames_are_of_bounded_size_however_many_calls_wait() -> None:
    sizes = [
        len(
            compile_program(Session().add(Source("p", _sum_of_calls(n) + "(g 1)"))).text
        )
        for n in (60, 120)
    ]
    assert sizes[1] < 2.5 * sizes[0]


def test_packed_frames_hold_what_they_held() -> None:
    text = _sum_of_calls(60) + "(*j g 2 1) (checkpoint-*j g 2 1) (j* g 2 1)"
    plan = retape.logarithmic(stage=50)
    results = [vlad.run(text, engine=e, plan=plan) for e in ("hybrid", "compiled")]
    assert results[0].output == results[1].output
    assert results[0].steps == results[1].steps
