"""A VLAD run in a process of its own, for being killed.

    killed_vlad.py FOLDER ENGINE PUTS

The process kills itself, with no warning, in the middle of keeping snapshot PUTS; with
-1 it does not. It then prints the bits of the gradient, and whether it took a run up.
"""

import os
import signal
import struct
import sys

from retape import DiskStore, fixed_space, vlad
from retape.storage import _run_directory

PROGRAM = """
(define (car (cons a b)) a)
(define (cdr (cons a b)) b)
(define (chain x n)
  (if (zero? n) '()
      (let ((f (lambda (y) (* x (sin y))))) (cons f (chain (cos x) (- n 1))))))
(define (apply-all fs y)
  (if (null? fs) y ((car fs) (apply-all (cdr fs) (+ y 0.1)))))
(define (sweep v n)
  (if (zero? n) v
      (let ((at (modulo n (vector-length v))) (next (modulo (+ n 1) (vector-length v))))
        (sweep (vector-set v at (sin (+ (vector-ref v at) (vector-ref v next))))
               (- n 1)))))
(define (f v)
  (let ((w (sweep v 40)) (q '(1.5 . #t)))
    (cons (* (car q) (+ (apply-all (chain (vector-ref w 0) 25) (vector-ref w 1))
                        (* (vector-ref v 2) (vector-ref (sweep w 20) 2))))
          (lambda (z) (* z (vector-ref w 1))))))
(define (g v) (let ((y (f v))) (+ (car y) ((cdr y) 3))))
"""


def run(folder: str, engine: str) -> None:
    module = vlad.compile(
        PROGRAM,
        engine=engine,  # type: ignore[arg-type]
        plan=fixed_space(snapshots=4, stage=90),
    )
    store = DiskStore(folder, every=0.0)
    argument = vlad.Vector([0.3, 0.7, -0.4, 1.1])
    gradient = module["g"].checkpointed_grad(argument, store=store)
    print(struct.pack("4d", *gradient).hex())


def dying_after(puts: int) -> None:
    """Arrange for the process to be killed while it writes."""
    write = _run_directory.sync_directory
    count = 0

    def killed(path: object) -> None:
        nonlocal count
        count += 1
        if count == puts:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path)  # type: ignore[arg-type]

    _run_directory.sync_directory = killed


if __name__ == "__main__":
    dying_after(int(sys.argv[3]))
    run(sys.argv[1], sys.argv[2])
