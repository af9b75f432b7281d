"""Typed code: its form, its reverse, and where it leaves a stage to the general way."""

import math
from typing import Any

import numpy as np
import pytest
from benchmarks.native import functions as ten

import retape
from retape import native, vlad
from retape.engines.vlad.compiler._pipeline import intermediate
from retape.engines.vlad.compiler.emit._emit import Emission
from retape.engines.vlad.compiler.ir._liveness import Liveness
from retape.engines.vlad.compiler.typed._check_typed import IllTyped, check_typed
from retape.engines.vlad.compiler.typed._form import (
    Do,
    Give,
    Invoke,
    Register,
    TypedFunction,
    TypedProgram,
)
from retape.engines.vlad.compiler.typed._lower_typed import TypedLowering
from retape.engines.vlad.compiler.typed._pretty_typed import pretty_typed
from retape.engines.vlad.compiler.typed._typed_functions import Typable
from retape.engines.vlad.language._diagnostics import Source
from retape.engines.vlad.language._program import Session

ORBIT = """
(define (orbit r) (lambda (x)
  (let loop ((i 0) (x x)) (if (< i 9) (loop (+ i 1) (* (* r x) (- 1 x))) x))))
(*j (orbit 3.5) 0.3 1)
"""


def _typed(text: str) -> TypedProgram:
    module = intermediate(Session().add(Source("test", text)))
    typable = Typable(module, Liveness(module))
    emission = Emission(module, typable.live)
    emission.text(lambda frames: ())
    f = emission.frames
    return TypedLowering(typable, f.costs, f.codes, f.resumes).lower()


def test_the_typed_form_of_a_loop() -> None:
    """The counter is no number that adjoints reach; a power of x is not on the tape."""
    assert pretty_typed(_typed(ORBIT)) == (
        "f1(x.d3*) =\n"
        "  tick 2\n"
        "  tick 4\n"
        "  f2(0 x.d3*)  ; tape\n"
        "\n"
        "f2(i.d5 x.d6*) = ; loop\n"
        "  tick 9\n"
        "  let t.b8 = < i.d5 9\n"
        "  if t.b8\n"
        "    tick 11\n"
        "    let t.d9 = + i.d5 1\n"
        "    tick 11\n"
        "    let t.d10* = * r.d2* x.d6*\n"
        "    tick 8\n"
        "    let t.d11* = - 1 x.d6*\n"
        "    tick 3\n"
        "    let t.d12* = * t.d10* t.d11*\n"
        "    f2(t.d9 t.d12*)  ; tape x.d6 once r.d2\n"
        "  else\n"
        "    tick 1\n"
        "    give x.d6*  ; tape\n"
    )


def _function(program: TypedProgram, name: str) -> TypedFunction:
    (found,) = (f for f in program.functions.values() if f.name == name)
    return found


def test_the_checker_of_the_typed_form_catches_lies() -> None:
    def lie(change: Any) -> TypedProgram:
        program = _typed(ORBIT)
        change(_function(program, "loop"))
        return program

    def unbound(f: TypedFunction) -> None:
        f.body = Give((Register("nowhere.d1", "d"),))

    def twice(f: TypedFunction) -> None:
        f.body = Do(f.params[0], "+", (1.0, 2.0), f.body)

    def of_another_kind(f: TypedFunction) -> None:
        f.body = Give((True,))

    def of_too_few(f: TypedFunction) -> None:
        f.body = Invoke(f.index, (1.0,), None)

    def of_none(f: TypedFunction) -> None:
        f.body = Invoke(99, (), None)

    check_typed(_typed(ORBIT))
    for change, says in (
        (unbound, "`nowhere.d1` is used where it is not bound"),
        (twice, "is bound twice"),
        (of_another_kind, r"\['b'\] for the \['d'\] of a value"),
        (of_too_few, "for the .* of function"),
        (of_none, "no typed function 99"),
    ):
        with pytest.raises(IllTyped, match=says):
            check_typed(lie(change))


def test_closures_and_lists_of_other_things_are_left_to_the_general_way() -> None:
    text = "(define (f x) (map (lambda (y) (* x y)) x)) (define (map g x) (g x)) "
    program = _typed(text + "(*j f 2 1)")
    assert not [f for f in program.functions.values() if f.name in ("f", "map")]
    text = "(define (f x l) (if (pair? l) (f (* x x) (cdr l)) x))"
    text += "(*j (lambda (x) (f x (cons {0} '()))) 2 1)"
    for item, is_typed in (("3", True), ("#t", False), ("'()", False)):
        program = _typed("(define (cdr (cons a b)) b)" + text.format(item))
        found = [f for f in program.functions.values() if f.name == "f"]
        assert bool(found) == is_typed, item


def _stages(engine: Any) -> tuple[int, int]:
    """How many stages typed code has done, and how many it has left."""
    return engine.native.typed_stages()


def _flat(value: Any) -> np.ndarray:
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(part, tuple) for part in parts):
        return np.concatenate([_flat(part) for part in parts])
    return np.concatenate([np.ravel(part) for part in parts])


SAME_BITS = (ten.logistic_map, ten.n_body, ten.adaptive_grid)
FUNCTIONS = (*SAME_BITS, ten.recursive_quadrature)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_typed_stages_do_what_the_interpreter_does(f: Any) -> None:
    """In one stage, and in many short ones, which begin and end anywhere.

    Where a variable is passed to a call and used after it, the sums of its adjoint are
    of the call and of the rest, so that the last bit may differ.
    """
    args, by = ten.SMALL[f]
    expected = _flat(native.value_and_grad(f, by, engine="interpreter")(*args))
    for stage in (10**9, 61):
        plan = retape.logarithmic(stage=stage)
        gradient = native.value_and_grad(f, by, plan=plan)
        found = _flat(gradient(*args))
        (made,) = gradient._made.values()
        done, left = _stages(made.engine)
        assert left == (stage != 10**9)  # the run as one stage, which is too long
        assert done == 1 if stage == 10**9 else done > 5
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0.0)
        if f in SAME_BITS and stage == 10**9:
            assert found.tobytes() == expected.tobytes()


PROGRAMS = {
    "an infinite partial of an adjoint of zero": (
        "(define (f@ x) (+ x (* 0 (sqrt x)))) (define (g@ x) (*j f@ x 1))",
        0.0,
        1,
    ),
    "an old version of a vector": (
        "(define (f@ x) (let* ((v (make-vector 2 x)) (w (vector-set v 0 (* x x))))"
        " (+ (vector-ref v 0) (vector-ref w 0)))) (define (g@ x) (*j f@ x 1))",
        3.0,
        1,
    ),
    "a vector": (
        "(define (f@ x) (let loop ((i 0) (v (make-vector 3 x))) (if (< i 3)"
        " (loop (+ i 1) (vector-set v i (* x (+ i (vector-ref v i)))))"
        " (* (vector-ref v 1) (vector-ref v 2))))) (define (g@ x) (*j f@ x 1))",
        3.0,
        0,
    ),
    "a tuple in a state twice": (
        "(define (f@ (cons a b)) (let loop ((i 0) (p (cons a b)) (q (cons b a)))"
        " (if (< i 30) (let ((p2 (cons (+ i i) 2))) (loop (+ i 1) q p))"
        " (let (((cons x y) p) ((cons z w) q)) (* (* x y) (+ z (* w x)))))))"
        " (define (g@ x) (checkpoint-*j f@ (cons x 2) 1))",
        3.0,
        0,
    ),
    "a deep recursion": (
        "(define (f@ x) (if (< x 1) x (+ (* x x) (f@ (- x 0.5)))))"
        " (define (g@ x) (checkpoint-*j f@ x 1))",
        20.0,
        0,
    ),
    "the end of a state in the middle of a return": (
        "(define (h@ x n) (if (= n 0) (* x x) (h@ (* x 1.01) (- n 1))))"
        " (define (f@ x) (+ (h@ x 3) (* 2 (h@ (h@ x 2) 4))))"
        " (define (g@ x) (checkpoint-*j f@ x 1))",
        1.5,
        0,
    ),
    "extremes, powers, remainders": (
        "(define (f@ x) (+ (min x (* x x)) (+ (max (expt x 3) 2) (abs (- 0 x)))))"
        " (define (g@ x) (checkpoint-*j f@ x 1))",
        2.5,
        0,
    ),
    "a derivative of a derivative": (
        "(define (f@ x) (* x (* x x))) (define (cdr@ (cons a b)) b)"
        " (define (d@ x) (cdr@ (*j f@ x 1))) (define (g@ x) (checkpoint-*j d@ x 1))",
        2.0,
        None,
    ),
}


@pytest.mark.parametrize("stage", [10**6, 7])
def test_programs_give_the_same_bits_as_the_interpreter(stage: int) -> None:
    plan = retape.logarithmic(stage=stage)
    text = "\n".join(
        program.replace("@", str(i))
        for i, (program, _, _) in enumerate(PROGRAMS.values())
    )
    interpreted = vlad.compile(text, engine="interpreter", plan=plan)
    compiled = vlad.compile(text, plan=plan)
    engine: Any = compiled.engine
    for i, (name, (_, x, left)) in enumerate(PROGRAMS.items()):
        before = engine.native.typed_stages()
        assert compiled[f"g{i}"](x) == interpreted[f"g{i}"](x), name
        after = engine.native.typed_stages()
        if left is not None and stage == 10**6:
            assert (after[0] - before[0], after[1] - before[1]) == (1 - left, left)


def test_a_fault_in_typed_code_is_told_by_the_general_way() -> None:
    text = (
        "(define (f x) (let loop ((i 0) (x x)) (if (< i 5) (loop (+ i 1) "
        "(* x (vector-ref (make-vector 3 x) i))) x))) (define (g x) (*j f x 1))"
    )
    with pytest.raises(retape.LanguageError) as compiled:
        vlad.compile(text)["g"](2.0)
    with pytest.raises(retape.LanguageError) as interpreted:
        vlad.compile(text, engine="interpreter")["g"](2.0)
    lines = [str(each.value).splitlines()[:3] for each in (compiled, interpreted)]
    assert lines[0] == lines[1]


def test_places_that_a_vector_lacks_are_left_to_the_general_way() -> None:
    text = (
        "(define (f x) (* x (vector-ref (make-vector 3 x) x)))"
        " (define (g x) (*j f x 1))"
    )
    compiled, interpreted = vlad.compile(text), vlad.compile(text, engine="interpreter")
    for at in (0.0, -0.0, 2.0):
        assert compiled["g"](at) == interpreted["g"](at)
    big = 2.0**64
    for at in (-1.0, -0.5, 0.5, 3.0, 2.0**32, big, -big, 1e300, math.inf, math.nan):
        with pytest.raises(retape.LanguageError, match="is no index") as one:
            compiled["g"](at)
        with pytest.raises(retape.LanguageError) as other:
            interpreted["g"](at)
        lines = [str(each.value).splitlines()[:1] for each in (one, other)]
        assert lines[0] == lines[1], at


def test_a_function_without_a_derivative_is_typed_code_too() -> None:
    done = native.function(ten.newton)
    assert done(2.0, 1e-9) == ten.newton(2.0, 1e-9)
    (made,) = done._made.values()
    assert "is_typed = 1" in made.engine.compiled.text
    assert '#include "untyped.h"' not in made.engine.compiled.text


def test_a_function_of_arrays_is_typed_code_and_keeps_no_dead_rows() -> None:
    """Each step makes four small arrays: 11 MB of them in 20,000."""
    bodies = ten.SMALL[ten.n_body][0][:3]
    moved = native.function(ten.n_body)
    assert moved(*bodies, 50) == ten.n_body(*bodies, 50)
    moved(*bodies, 20_000)
    (made,) = moved._made.values()
    runtime: Any = made.engine
    assert "typed_record" in runtime.compiled.text
    assert runtime.native.call("census").u < 2_500_000


def test_a_fault_in_a_function_of_arrays_is_told_by_the_general_way() -> None:
    def late(a: Any, n: Any) -> Any:
        total = 0.0
        for i in range(n):
            total += a[i]
        return total

    compiled = native.function(late)
    assert compiled(np.arange(3.0), 3) == 3.0
    with pytest.raises(retape.RetapeError, match="out of range of an array"):
        compiled(np.arange(3.0), 5)
    assert compiled(np.arange(3.0), 2) == 1.0


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (ten.logistic_map, (0.3, 3.5, 20_000)),
        (ten.rnn_cell, (*ten.SMALL[ten.rnn_cell][0][:3], 1_000)),
    ],
)
def test_a_budget_is_spent_on_what_a_typed_step_takes(f: Any, args: Any) -> None:
    """A step counted as 40 bytes left nine tenths of a budget unused."""
    budget = 100_000
    gradient = native.grad(f, (0, 1), plan=retape.within(budget))
    expected = native.grad(f, (0, 1))(*args)
    gradient(*args)
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    runtime.native.exact(True)
    runtime.native.forget_peaks()
    found = native.measure(gradient, *args)
    for one, other in zip(found.value, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    counted = runtime.native.call("census").t
    assert budget / 4 < counted <= budget
    (report,) = found.reports
    assert report.advances < 2 * report.length


def test_a_step_counts_the_arrays_that_a_stage_keeps() -> None:
    """Of a vector of 100 in each iteration there are values and adjoints."""

    def filled(x: Any, n: Any) -> Any:
        total = 0.0
        for i in range(n):
            a = np.full(100, x)
            total += a[i % 100]
        return total

    gradient = native.grad(filled, plan=retape.within("200 kB"))
    assert gradient(0.5, 2_000) == 2_000.0
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    runtime.native.exact(True)
    runtime.native.forget_peaks()
    native.measure(gradient, 0.5, 2_000)
    assert 50_000 < runtime.native.call("census").t < 200_000
