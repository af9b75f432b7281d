"""Vectors: constant-time access, updates in place, and derivatives in linear time.

    python -m benchmarks.vlad.vectors

Prints, for vectors of several lengths, nanoseconds of the processor and bytes allocated
for an access and an update; then, for the example of Fig. 8's rotations on a vector and
on a list, nanoseconds for each element of a sweep, primal and reversed.
"""

import time

import retape
from retape.engines.vlad.language._diagnostics import Source
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.session._engines import CompiledEngine, Setting

UPDATES = 2_000_000

PROGRAM = """
(define (car (cons a b)) a)
(define (cdr (cons a b)) b)
(define (touch v k)
  (let loop ((i 0) (at 0) (v v))
    (if (= i k) (vector-ref v 0)
        (loop (+ i 1)
              (let ((next (+ at 613)) (n (vector-length v)))
                (if (< next n) next (- next n)))
              (vector-set v at (+ 1 (vector-ref v at)))))))
(define (fill n f)
  (let loop ((i 0) (v (make-vector n 0)))
    (if (= i n) v (loop (+ i 1) (vector-set v i (f i))))))
(define (rotate-vector theta v)
  (let ((c (cos theta)) (s (sin theta)) (n (vector-length v)))
    (let loop ((i 0) (v v))
      (if (>= (+ i 1) n) v
          (let ((a (vector-ref v i)) (b (vector-ref v (+ i 1))))
            (loop (+ i 2)
                  (vector-set (vector-set v i (- (* c a) (* s b)))
                              (+ i 1) (+ (* s a) (* c b)))))))))
(define (magsqr v)
  (let loop ((i 0) (s 0))
    (if (= i (vector-length v)) s
        (loop (+ i 1) (+ s (* (vector-ref v i) (vector-ref v i)))))))
(define (turns k v)
  (if (zero? k) (magsqr v) (turns (- k 1) (rotate-vector (sqrt (magsqr v)) v))))
(define (iota n) (if (zero? n) '() (cons n (iota (- n 1)))))
(define (rotate-list theta x)
  (if (or (null? x) (null? (cdr x))) x
      (let ((c (cos theta)) (s (sin theta)) (a (car x)) (b (car (cdr x))))
        (cons (- (* c a) (* s b))
              (cons (+ (* s a) (* c b)) (rotate-list theta (cdr (cdr x))))))))
(define (magsqr-list x)
  (if (null? x) 0 (+ (* (car x) (car x)) (magsqr-list (cdr x)))))
(define (turns-list k x)
  (if (zero? k) (magsqr-list x)
      (turns-list (- k 1) (rotate-list (sqrt (magsqr-list x)) x))))
"""


def compiled(expressions: list[str]) -> CompiledEngine:
    """The program with some expressions, compiled."""
    source = Source("vectors", PROGRAM + "\n".join(expressions))
    setting = Setting(retape.logarithmic(stage=100_000), lambda: None, print)
    return CompiledEngine(Session().add(source), setting)


def access() -> None:
    """An access and an update, for vectors of several lengths."""
    lengths = (1_000, 10_000, 100_000, 1_000_000)
    engine = compiled([f"(touch (make-vector {n} 0) {UPDATES})" for n in lengths])
    print("a vector of n, one element read and updated:")
    for index, n in enumerate(lengths):
        before, began = engine.native.allocated(), time.process_time()
        engine.evaluate(index)
        seconds, after = time.process_time() - began, engine.native.allocated()
        young = (after.young - before.young) / UPDATES
        copied = (after.array_bytes - before.array_bytes - 8 * n) / UPDATES
        print(
            f"  n = {n:9,}: {1e9 * seconds / UPDATES:6.1f} ns, {young:.1f} bytes for "
            f"the new version, {copied:.1f} bytes of copies"
        )


def sweeps() -> None:
    """Rotations over a vector and over a list, primal and by both reverse modes."""
    forms = {
        "primal": "((lambda (x) (body x)) start)",
        "reverse": "(*j (lambda (x) (body x)) start 1)",
        "divide and conquer": "(checkpoint-*j (lambda (x) (body x)) start 1)",
    }
    kinds = {
        "vector": ("turns 100", "(fill {n} (lambda (i) (+ i 1)))"),
        "list": ("turns-list 100", "(iota {n})"),
    }
    print("100 rotations of n elements, ns for each element:")
    for n in (100, 1_000, 10_000):
        for kind, (body, start) in kinds.items():
            texts = [
                form.replace("body", body).replace("start", start.format(n=n))
                for form in forms.values()
            ]
            engine = compiled(texts)
            taken: list[str] = []
            for index, name in enumerate(forms):
                began = time.process_time()
                engine.evaluate(index)
                seconds = time.process_time() - began
                taken.append(f"{name} {1e9 * seconds / (100 * n):.1f}")
            print(f"  n = {n:6,}, {kind:6}: {', '.join(taken)}")


if __name__ == "__main__":
    access()
    sweeps()
