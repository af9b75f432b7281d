"""A VLAD function as a fast differentiable routine for a Python program."""

from retape import logarithmic, vlad

PROGRAM = """
(define (car (cons a b)) a)
(define (cdr (cons a b)) b)

; A pendulum of length 1, integrated for n steps of h by the symplectic Euler method.
(define (pendulum angle speed h n)
  (if (zero? n)
      angle
      (let ((speed (- speed (* h (* 9.81 (sin angle))))))
        (pendulum (+ angle (* h speed)) speed h (- n 1)))))
"""


def main() -> None:
    module = vlad.compile(PROGRAM, plan=logarithmic(stage=10_000))
    pendulum = module["pendulum"]
    angle = pendulum(1.0, 0.0, 1e-3, 10_000)
    by_angle, by_speed, *_ = pendulum.checkpointed_grad(1.0, 0.0, 1e-3, 10_000)
    print(f"angle {angle:.6f}, by start angle {by_angle:.6f}, by speed {by_speed:.6f}")
    h = 1e-6
    near = (pendulum(1 + h, 0, 1e-3, 10_000) - pendulum(1 - h, 0, 1e-3, 10_000)) / (
        2 * h
    )
    print(f"by finite differences {near:.6f}")


if __name__ == "__main__":
    main()
