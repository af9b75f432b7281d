"""Large programs: C functions of bounded size, with the same bits as one."""

import pytest

from retape import logarithmic
from retape.engines.vlad.compiler._pipeline import compile_program
from retape.engines.vlad.compiler.adjoint import _emit_parts, _emit_typed
from retape.engines.vlad.compiler.emit import _emit, _parts
from retape.engines.vlad.language._diagnostics import RunError, Source
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.session._engines import Engine, Setting, make_engine
from retape.engines.vlad.values._values import show
from tests.engines.vlad.support.cases import same_output

PROGRAM = """
(define (smooth x y) (if (< x y) (* (+ x y) (sin (* 2 x))) (- (* x x) (/ y (+ 2 x)))))
(define (even? n x) (if (zero? n) x (odd? (- n 1) (sin (+ x n)))))
(define (odd? n x) (if (zero? n) (* 2 x) (even? (- n 1) (* x (smooth x n)))))
(define (deep n x) (if (zero? n) x (+ (smooth x n) (deep (- n 1) (* x 0.9)))))
(define (car (cons a b)) a)
(define (cdr (cons a b)) b)
(define (map f l) (if (null? l) '() (cons (f (car l)) (map f (cdr l)))))
(define (total l) (if (null? l) 0 (+ (car l) (total (cdr l)))))
(define (scaled r) (lambda (x) (* r (smooth x r))))
(define (filled n x) (let loop ((v (make-vector n x)) (i 0))
  (if (= i n) v (loop (vector-set v i (* x (smooth i x))) (+ i 1)))))
(define (plain x)
  (let loop ((i 0) (y x)) (if (< i 5) (loop (+ i 1) (+ (even? i y) (deep i x))) y)))
(define (wrong x) (* (+ x 1) (- x 2)))
(define (all x)
  (let ((inner (lambda (y) (let loop ((i 0) (y y))
                 (if (< i 30) (loop (+ i 1) (+ (* 0.5 (smooth y i)) (deep i x))) y)))))
    (+ (+ (even? 7 x) (inner x))
       (+ (total (map (scaled x) (list 1 2 x))) (vector-ref (filled 5 x) 3)))))
(all 0.7)
(*j all 0.7 1)
(checkpoint-*j all 0.7 1)
(j* all 0.7 1)
(*j (lambda (x) (cdr (*j all x 1))) 0.7 1)
(*j plain 0.7 1)
(checkpoint-*j plain 0.7 1)
(*j deep (cons 40 0.7) 1)
(wrong #t)
"""


def _cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parts, "PART_TERMS", 20)
    monkeypatch.setattr(_emit, "PART_TERMS", 20)
    monkeypatch.setattr(_emit_typed, "ONE_PART", 0)
    monkeypatch.setattr(_emit_parts, "PART_WAYS", 2)


def _text(program: str) -> str:
    return compile_program(Session().add(Source("test", program))).text


def test_a_program_in_many_parts_has_the_bits_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, interpreted = _outcomes("compiled"), _outcomes("interpreter")
    _cut_small(monkeypatch)
    text = _text(PROGRAM)
    kinds = ("static int part_", "static int record_part_", "_t reverse_part_")
    assert all(text.count(kind) > 1 for kind in kinds)
    assert _outcomes("compiled") == whole
    assert all(map(same_output, whole, interpreted))
    assert whole[-1].startswith("RunError")


def _outcomes(name: str) -> list[str]:
    """What each expression gives with all digits, and its steps; or the fault."""
    program = Session().add(Source("test", PROGRAM))
    setting = Setting(logarithmic(stage=500), lambda: None, print)
    engine: Engine = make_engine(name, program, setting)  # type: ignore[arg-type]
    found: list[str] = []
    for i in range(len(program.expressions)):
        try:
            value, steps = engine.evaluate(i)
            found.append(f"{show(value)} ; {steps}")
        except RunError as error:
            found.append(f"RunError: {error.message}")
    return found


def _functions(count: int) -> str:
    each = "(define (f{0} x) (if (< x {0}) (f{0} (+ (sin x) {0})) (* x {0})))"
    made = "\n".join(each.format(i) for i in range(count))
    terms = "".join(f" (f{i} x))" for i in range(count))
    return f"{made}\n(*j (lambda (x) {'(+ ' * count}0{terms}) 1 1)"


def test_a_larger_program_has_more_functions_of_c_and_no_longer_ones() -> None:
    found = [_parts_of(_text(_functions(size))) for size in (100, 200)]
    assert len(found[1]) > len(found[0]) > 1
    assert max(map(len, found[1])) < 1.2 * max(map(len, found[0]))


def test_a_larger_program_is_compiled_by_several_processes() -> None:
    """The general code, what records, and the reverse: each without the others."""
    made = compile_program(Session().add(Source("test", _functions(60))))
    names = ("int run_slice(", "int typed_record(", "void typed_reverse(")
    found = [[name in each for name in names] for each in made.files]
    includes = '#include "typed_record.h"'
    found[1][1] = includes in made.files[1]
    assert found == [[i == j for j in range(3)] for i in range(3)]


def _parts_of(text: str) -> list[str]:
    return [each for each in text.split("\nstatic ") if each.startswith("int part_")]


def test_what_is_copied_into_one_function_is_bounded() -> None:
    """Calls after the first 70 or so are calls."""
    f = "(define (f x y) (if (< x y) x (* x (+ x (sin y)))))"
    terms = "".join(f" (f x {i}))" for i in range(200))
    text = _text(f"{f}\n(define (g x) {'(+ ' * 200}0{terms})\n(g 1)")
    assert 40 < text.count("any_sin") < 100


def test_what_no_closure_enters_has_no_way_in() -> None:
    """Of three functions, the host and `*j` have one each."""
    body = "(define (f x) (if (< x 1) (f (+ x 1)) x)) (define (g x) (* 2 (f x)))"
    text = _text(f"{body}\n(*j g 1 1)")
    inward = text.partition("ENTER:")[2].partition("default:")[0]
    assert inward.count("case") == 2


def test_operators_in_a_row_are_tested_once() -> None:
    text = _text(
        "(define (f x y) (if (zero? y) x (f (+ (* x x) (- x y)) (- y 1))))\n(f 1 2)"
    )
    body = text.partition("/* f */")[2].partition("goto PAUSE;")[0]
    assert "if (LIKELY(is_double(v_x" in body
    assert body.count("else {") == 2, "the row's other arm, and the program's own"
