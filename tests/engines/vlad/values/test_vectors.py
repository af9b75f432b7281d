"""Vectors: access in constant time, updates in place, old versions, and memory."""

from typing import Any

import pytest

import retape
from retape import vlad
from retape.engines.vlad.values import _versioned_arrays as _arrays
from tests.engines.vlad.support.cases import ENGINES
from tests.engines.vlad.support.seams import engine_of

SWEEPS = """
(define (sweep v k)
  (let loop ((i 0) (v v))
    (if (= i k) (vector-ref v 0)
        (let ((at (modulo i (vector-length v))))
          (loop (+ i 1) (vector-set v at (+ 1 (vector-ref v at))))))))
"""


def _compiled(text: str, stage: int = 10_000) -> Any:
    return engine_of("compiled", text, retape.logarithmic(stage=stage))


@pytest.mark.parametrize("length", [100, 10_000])
def test_an_update_of_a_vector_that_nobody_else_has_is_in_place(length: int) -> None:
    engine = _compiled(SWEEPS + f"(sweep (make-vector {length} 0) 100000)")
    before = engine.native.measured()
    assert engine.evaluate(0)[0] == 100_000 / length
    after = engine.native.measured()
    updates, overhead = 100_000, 1024
    assert 1 <= after.arrays - before.arrays <= 1 + updates // (length + overhead)
    # A version is a header and two words; an array is copied once in n + 1024 updates.
    assert (after.young - before.young) / updates == pytest.approx(24, rel=0.01)
    assert (after.array_bytes - before.array_bytes) / updates < 8 + 8 * length / updates


def test_an_array_is_copied_only_when_an_old_version_is_used_again() -> None:
    kept = "(let* ((v (make-vector 500 0)) (w (vector-set v 0 1)))"
    engine = _compiled(f"{kept} (vector-ref w 0)) {kept} (vector-ref v 0))")
    counts = [engine.native.measured().arrays]
    for index, value in enumerate((1.0, 0.0)):
        assert engine.evaluate(index)[0] == value
        counts.append(engine.native.measured().arrays)
    assert [b - a for a, b in zip(counts, counts[1:], strict=False)] == [1, 2]


def test_the_interpreters_update_in_place_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    init = _arrays.Array.__init__

    def counted(self: _arrays.Array, items: list[object]) -> None:
        made.append(len(items))
        init(self, items)

    monkeypatch.setattr(_arrays.Array, "__init__", counted)
    for engine in ENGINES[:2]:
        made.clear()
        text = SWEEPS + "(sweep (make-vector 5000 0) 5000)"
        assert vlad.run(text, engine=engine).values == (1.0,)  # type: ignore[arg-type]
        assert made == [5000]


def test_old_versions_outlive_collections() -> None:
    """A list of all versions of a vector, with pairs in it, over many collections."""
    text = """
    (define (car (cons a b)) a)
    (define (cdr (cons a b)) b)
    (define (history k)
      (let loop ((i 0) (v (make-vector 3 '())) (l '()))
        (if (= i k) l
            (loop (+ i 1)
                  (vector-set v (modulo i 3) (list i (vector-ref v (modulo i 3))))
                  (cons v l)))))
    (define (check l i)
      (cond ((null? l) #t)
            ((null? (vector-ref (car l) (modulo (- i 1) 3))) (< i 3))
            ((= (car (vector-ref (car l) (modulo (- i 1) 3))) (- i 1))
             (check (cdr l) (- i 1)))
            (else (list i (car l)))))
    (check (history 30000) 29999)
    """
    engine = _compiled(text)
    engine.native.note_peaks(exact=True)
    assert engine.evaluate(0)[0] is True
    assert engine.native.measured().collections > 5


def test_a_sweep_over_a_vector_is_linear_in_steps_forward_and_back() -> None:
    """Cotangents are accumulated by element: doubling n doubles work and tape."""
    sizes = {}
    for n in (2000, 4000):
        text = SWEEPS + f"(*j (lambda (v) (sweep v {n})) (make-vector {n} 1) 1)"
        engine = _compiled(text)
        before = engine.native.measured()
        assert engine.evaluate(0)[0][0] == 2.0
        after = engine.native.measured()
        arrays = after.array_bytes - before.array_bytes
        sizes[n] = arrays, after.tape
    assert sizes[4000][0] < 2.1 * sizes[2000][0]
    assert sizes[4000][1] < 2.1 * sizes[2000][1]


def test_live_bytes_of_a_checkpointed_sweep_do_not_grow_with_its_length() -> None:
    text = SWEEPS.replace("(+ 1 (vec", "(sin (vec") + "".join(
        f"(checkpoint-*j (lambda (v) (sweep v {k})) (make-vector 50 1) 1)"
        for k in (1_000, 100_000)
    )
    engine = _compiled(text, stage=10_000)
    peaks = []
    for index in range(2):
        engine.native.note_peaks(exact=True)
        engine.evaluate(index)
        peaks.append(engine.native.measured().live)
    assert peaks[1] < 3 * peaks[0]


def test_vectors_from_python_and_back() -> None:
    text = "(define (f v) (* (vector-ref v 0) (vector-ref v 1))) (define (id x) x)"
    for engine in ENGINES:
        module = vlad.compile(text, engine=engine)  # type: ignore[arg-type]
        value = vlad.Vector([2, vlad.Vector([True]), [1, (2, 3)]])
        assert module["id"](value) == (2.0, (True,), [1.0, (2.0, 3.0)])
        assert repr(module["id"](value)).startswith("Vector([2.0, Vector([True]),")
        assert module["f"].grad(vlad.Vector([3, 5])) == (5.0, 3.0)
        assert module["f"].checkpointed_grad(vlad.Vector([3, 5])) == (5.0, 3.0)


def test_an_array_of_numpy_is_a_vector() -> None:
    np = pytest.importorskip("numpy")
    module = vlad.compile(SWEEPS, engine="interpreter")
    assert module["sweep"](np.arange(3.0), 7) == 3.0
    with pytest.raises(TypeError, match="pass numbers, booleans"):
        module["sweep"](np.zeros((2, 2)), 1)
