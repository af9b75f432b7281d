"""Hints on programs of the language, their externals, stores and values."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import os
from pathlib import Path
from typing import Any

import retape
from retape import vlad
from retape.cli import main
from tests.hints.processes import alone
from tests.hints.rows import rows


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

ROWS = rows(
    "'3\\n'",
    r"""
vlad.run(3)
LanguageError says: Pass the text of one, or the path of a `.vlad`  as: (+ 1 2)
vlad.run('(+ 1 2)').values
gives: (3.0,)

run('(lambda (x))')
says: write `(lambda (p ...) body)`  as: (lambda (x y) (+ x y))
run('((lambda (x y) (+ x y)) 1 2)')

run('(letrec (((cons x y) (cons 1 2))) (+ x y))')
says: use `let`
run('(let (((cons x y) (cons 1 2))) (+ x y))')

run('(define x 3) (* x x)')
says: use `let`
run('(let ((x 3)) (* x x))')
gives: '9\n'

run('(cond)')
says: write `(cond (test e) ... (else e))`  as: (cond (#f 1) ((< 1 2) 2) (else 3))
run('(cond (#f 1) ((< 1 2) 2) (else 3))')
gives: '2\n'

run('(if (< 1 2) 3)')
says: write `(if test then else)`  as: (if (< 1 2) 3 4)
run('(if (< 1 2) 3 4)')

run('(include 3)')
says: write `(include "path")`
monkeypatch.chdir(tmp_path)
_ = Path('path').write_text('(define (f x) (* x x))')
run('(include "path") (f 3)')
gives: '9\n'

run("(cons 1 ')")
says: write one, as in `'()`
run("'()")
gives: '()\n'

run('#| sum 3')
says: write the missing `|#`
run('#| sum |# 3')

run('(+ 1 2')
LanguageError says: write the missing `)`
run('(+ 1 2)')

run('(+ 1 2]')
says: write `)`
run('(+ 1 2)')

run('(let ((x)) x)')
says: write `(let ((name e) ...) body)`  as: (let ((x 1) (y 2)) (+ x y))
run('(let ((x 1) (y 2)) (+ x y))')

run('(define (f x))')
says: write `(define (f p ...) body)`  as: (define (f x y) (* x y))
run('(define (f x y) (* x y)) (f 2 3)')
gives: '6\n'

vlad.External(lambda x: x**3, [])
says: pass `partials`
cube = vlad.External(lambda x: x**3, partials=[lambda x: 3 * x**2])
run('(*j cube 2 1)', externals={'cube': cube})
gives: '(8 . 12)\n'

vlad.External(lambda x: x**3, [3])
says: pass functions, an `External`
slope = vlad.External(lambda x: 3 * x**2, [lambda x: 6 * x])
cube = vlad.External(lambda x: x**3, [slope])
twice = '(*j (lambda (x) (let (((cons y dy) (*j cube x 1))) dy)) 2 1)'
run(twice, externals={'cube': cube})
gives: '(12 . 12)\n'

cube = vlad.External(lambda x: x**3, [None])
run('(*j cube 2 1)', externals={'cube': cube})
says: pass one in the `partials`
cube = vlad.External(lambda x: x**3, partials=[lambda x: 3 * x**2])
run('(*j cube 2 1)', externals={'cube': cube})
gives: '(8 . 12)\n'

vlad.run(LOOP, store=retape.MemoryStore())
says: pass a directory, or a `DiskStore`
vlad.run(LOOP, store=retape.DiskStore(tmp_path / 'runs')).output
gives: run(LOOP.replace('checkpoint-*j', '*j'))

run(LOOP, store=tmp_path / 'runs')
says: pass `engine="compiled"`
vlad.run(LOOP, engine="compiled", store=tmp_path / 'runs').output
gives: run(LOOP)

vlad.compile('(define (f v) v)', engine='interpreter')['f']('a')
TypeError says: pass numbers, booleans, lists and tuples of them, a `Vector`
product = '(define (f v) (* (vector-ref v 0) (vector-ref v 1)))'
vlad.compile(product, engine='interpreter')['f'](vlad.Vector([3, 5]))
gives: 15.0

terminal('(+ 1 2) ; für', 'ascii')
says: set `PYTHONIOENCODING=utf-8`  as: PYTHONIOENCODING='utf-8'
terminal('(+ 1 2) ; für', PYTHONIOENCODING='utf-8').split()[1]
gives: '3'

typed(monkeypatch, '(* 3 (read-real))', 'half')
says: write one number, such as `0.5`
typed(monkeypatch, '(* 3 (read-real))', '0.5').strip()
gives: '1.5'
""",
)
