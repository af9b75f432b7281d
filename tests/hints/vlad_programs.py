"""Hints on programs of the language, their externals, stores and values."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import os
from pathlib import Path
from typing import Any

import retape
from retape import vlad
from retape.cli import main
from tests.hints.processes import alone
from tests.hints.rows import Row


def run(text: str, **options: Any) -> str:
    """What a program prints."""
    return vlad.run(text, engine="interpreter", **options).output


def typed(monkeypatch: Any, *lines: str) -> str:
    """What the prompt says to a person who types these lines."""
    left = list(lines)
    said: list[str] = []

    def ask(prompt: str) -> str:
        del prompt
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr("builtins.print", lambda *a, **_: said.append(str(a[0])))
    main(["vlad"])
    monkeypatch.undo()
    return "\n".join(said)


def terminal(line: str, PYTHONIOENCODING: str) -> str:  # noqa: N803
    """What the prompt says to a line, in a process with this setting."""
    return alone(
        "from retape.cli import main; main(['vlad'])",
        line,
        HOME=os.devnull,
        PYTHONIOENCODING=PYTHONIOENCODING,
    )


LOOP = (
    "(define (f x) (let loop ((n 200) (y x)) (if (= n 0) y"
    " (loop (- n 1) (* 0.9 (sin y))))))"
    "(checkpoint-*j f 0.5 1)"
)

ROWS = [
    Row(
        "Pass the text of one, or the path of a `.vlad`",
        "vlad.run(3)",
        "vlad.run('(+ 1 2)').values",
        "(3.0,)",
        written="(+ 1 2)",
    ),
    Row(
        "write `(lambda (p ...) body)`",
        "run('(lambda (x))')",
        "run('((lambda (x y) (+ x y)) 1 2)')",
        "'3\\n'",
        written="(lambda (x y) (+ x y))",
    ),
    Row(
        "use `let`",
        "run('(letrec (((cons x y) (cons 1 2))) (+ x y))')",
        "run('(let (((cons x y) (cons 1 2))) (+ x y))')",
        "'3\\n'",
    ),
    Row(
        "use `let`",
        "run('(define x 3) (* x x)')",
        "run('(let ((x 3)) (* x x))')",
        "'9\\n'",
    ),
    Row(
        "write `(cond (test e) ... (else e))`",
        "run('(cond)')",
        "run('(cond (#f 1) ((< 1 2) 2) (else 3))')",
        "'2\\n'",
        written="(cond (#f 1) ((< 1 2) 2) (else 3))",
    ),
    Row(
        "write `(if test then else)`",
        "run('(if (< 1 2) 3)')",
        "run('(if (< 1 2) 3 4)')",
        "'3\\n'",
        written="(if (< 1 2) 3 4)",
    ),
    Row(
        'write `(include "path")`',
        "run('(include 3)')",
        "monkeypatch.chdir(tmp_path)\n"
        "_ = Path('path').write_text('(define (f x) (* x x))')\n"
        "run('(include \"path\") (f 3)')",
        "'9\\n'",
    ),
    Row("write one, as in `'()`", 'run("(cons 1 \')")', 'run("\'()")', "'()\\n'"),
    Row("write the missing `|#`", "run('#| sum 3')", "run('#| sum |# 3')", "'3\\n'"),
    Row("write the missing `)`", "run('(+ 1 2')", "run('(+ 1 2)')", "'3\\n'"),
    Row("write `)`", "run('(+ 1 2]')", "run('(+ 1 2)')", "'3\\n'"),
    Row(
        "write `(let ((name e) ...) body)`",
        "run('(let ((x)) x)')",
        "run('(let ((x 1) (y 2)) (+ x y))')",
        "'3\\n'",
        written="(let ((x 1) (y 2)) (+ x y))",
    ),
    Row(
        "write `(define (f p ...) body)`",
        "run('(define (f x))')",
        "run('(define (f x y) (* x y)) (f 2 3)')",
        "'6\\n'",
        written="(define (f x y) (* x y))",
    ),
    Row(
        "pass `partials`",
        "vlad.External(lambda x: x**3, [])",
        "cube = vlad.External(lambda x: x**3, partials=[lambda x: 3 * x**2])\n"
        "run('(*j cube 2 1)', externals={'cube': cube})",
        "'(8 . 12)\\n'",
    ),
    Row(
        "pass functions, an `External`",
        "vlad.External(lambda x: x**3, [3])",
        "slope = vlad.External(lambda x: 3 * x**2, [lambda x: 6 * x])\n"
        "cube = vlad.External(lambda x: x**3, [slope])\n"
        "twice = '(*j (lambda (x) (let (((cons y dy) (*j cube x 1))) dy)) 2 1)'\n"
        "run(twice, externals={'cube': cube})",
        "'(12 . 12)\\n'",
    ),
    Row(
        "pass one in the `partials`",
        "cube = vlad.External(lambda x: x**3, [None])\n"
        "run('(*j cube 2 1)', externals={'cube': cube})",
        "cube = vlad.External(lambda x: x**3, partials=[lambda x: 3 * x**2])\n"
        "run('(*j cube 2 1)', externals={'cube': cube})",
        "'(8 . 12)\\n'",
    ),
    Row(
        "pass a directory, a `DiskStore`",
        "run(LOOP, store=retape.MemoryStore())",
        "run(LOOP, store=retape.DiskStore(tmp_path / 'runs'))",
        "run(LOOP.replace('checkpoint-*j', '*j'))",
    ),
    Row(
        "pass `TieredStore(MemoryStore(), DiskStore(...))`",
        "near, far = retape.MemoryStore(), retape.DiskStore(tmp_path / 'a')\n"
        "inner = retape.TieredStore(near, far)\n"
        "run(LOOP, store=retape.TieredStore(near, inner))",
        "from retape import DiskStore, MemoryStore, TieredStore\n"
        "run(LOOP, store=TieredStore(MemoryStore(), DiskStore(tmp_path / 'runs')))",
        "run(LOOP.replace('checkpoint-*j', '*j'))",
    ),
    Row(
        "pass numbers, booleans, lists and tuples of them, a `Vector`",
        "vlad.compile('(define (f v) v)', engine='interpreter')['f']('a')",
        "product = '(define (f v) (* (vector-ref v 0) (vector-ref v 1)))'\n"
        "vlad.compile(product, engine='interpreter')['f'](vlad.Vector([3, 5]))",
        "15.0",
        error=TypeError,
    ),
    Row(
        "set `PYTHONIOENCODING=utf-8`",
        "terminal('(+ 1 2) ; für', 'ascii')",
        "terminal('(+ 1 2) ; für', PYTHONIOENCODING='utf-8').split()[1]",
        "'3'",
        written="PYTHONIOENCODING='utf-8'",
    ),
    Row(
        "write one number, such as `0.5`",
        "typed(monkeypatch, '(* 3 (read-real))', 'half')",
        "typed(monkeypatch, '(* 3 (read-real))', '0.5').strip()",
        "'1.5'",
    ),
]
