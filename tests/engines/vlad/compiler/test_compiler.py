"""The compiler: its passes, the checker, the C, and the cache."""

import re
import shutil
import subprocess
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import retape
from retape import vlad
from tests.engines.vlad.support.cases import FILES, read_cases
from tests.engines.vlad.support.seams import (
    RUNTIME,
    c_of,
    complete,
    forms,
    intermediate,
)

IGNORED = Path(__file__).parents[4] / ".gitignore"


def printed(text: str) -> str:
    return forms.pretty(intermediate(text))


def test_a_pair_that_is_taken_apart_at_once_is_never_built() -> None:
    text = "(define (swap a b) (cons b a)) (define (car (cons a b)) a) (car (swap 1 2))"
    assert "cons" not in printed(text)


def test_a_named_let_needs_no_closure_and_an_escaping_function_one() -> None:
    loop = "(lambda (y) (let loop ((i 0)) (if (= i y) i (loop (+ i 1)))))"
    assert "close" not in printed(f"({loop} 3)")
    escaping = "(let ((x (read-real))) (cons (lambda (y) (+ x y)) 1))"
    assert "close" in printed(escaping)


def _broken() -> list[tuple[Any, str]]:
    """The body of a function without parameters, and what the checker says."""
    one, f, x = forms.Lit(1.0), forms, forms.Register("x")
    a, end = f.Register("a", "d"), f.Return((one,))
    again = f.Let(x, "sin", (one,), 0, f.Let(x, "sin", (one,), 0, f.Return((x,))))
    return [
        (f.Return((x,)), "`x` is used where it is not bound"),
        (again, "`x` is bound twice"),
        (f.Jump("k", (one,)), "continuation `k` is not in scope"),
        (f.Call(7, (), None), "there is no function 7"),
        (f.Call(0, (one,), None), "1 values for the 0 of function 0"),
        (f.Return((f.Quoted(3),)), "there is no quoted datum 3"),
        (f.Return((f.FunRef(9),)), "there is no function 9"),
        (f.Return((one, one)), "2 values for the 1 of a value"),
        (
            f.Cont("k", (a,), end, f.Jump("k", (f.Lit(True),)), None),
            "is not of the kind of `a`",
        ),
    ]


@pytest.mark.parametrize(("body", "message"), _broken())
def test_the_checker_sees_a_lie(body: Any, message: str) -> None:
    module = intermediate("1")
    forms.check(module)
    (entry,) = module.functions
    module.functions[entry] = replace(module.functions[entry], body=body)
    with pytest.raises(forms.IllFormed, match=message):
        forms.check(module)


def test_the_checker_says_no_to_an_entry_that_is_none() -> None:
    module = replace(intermediate("1"), entries=[4])
    with pytest.raises(forms.IllFormed, match="entry 4 is no function"):
        forms.check(module)


@pytest.mark.slow(
    "gcc-None", "gcc-derivatives.cases", "gcc-forms.cases", "gcc-vectors.cases"
)
@pytest.mark.parametrize("file", [*FILES, None])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_c_compiles_without_a_warning(
    file: str | None, compiler: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    text = (RUNTIME / "runtime.c").read_text()
    if file is not None:
        prelude, cases = read_cases(file)
        text = "\n".join([prelude, *(case.text for case in cases)])
        text = c_of(text, file)
    source = tmp_path / "program.c"
    source.write_text(complete(text))
    flags = "-std=c11 -Wall -Wextra -Werror -O2 -S -o /dev/null".split()
    command = [compiler, *flags, f"-I{RUNTIME}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_runtime_is_part_of_the_package() -> None:
    """Every file that a compiled program includes, none of them ignored by Git."""
    root = RUNTIME
    found: set[str] = set()
    pending = [
        "runtime.c",
        "code.h",
        "untyped.h",
        "run_parts.h",
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


def test_frames_hold_what_sixty_calls_wait_with() -> None:
    total = "(f 2)"
    for i in range(60):
        total = f"(+ (* x (f {i})) {total})"
    text = "(define (f x) (if (< x 1) x (+ 1 (f (- x 1)))))"
    text += f"(define (g x) {total}) (*j g 2 1) (checkpoint-*j g 2 1) (j* g 2 1)"
    plan = retape.logarithmic(stage=50)
    results = [vlad.run(text, engine=e, plan=plan) for e in ("hybrid", "compiled")]
    assert results[0].output == results[1].output
    assert results[0].steps == results[1].steps
