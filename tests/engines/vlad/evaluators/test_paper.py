"""The paper's figures, as it writes them, against the library's driver."""

from typing import Any

import pytest

from retape import logarithmic
from tests.engines.vlad.support import paper as the_paper
from tests.engines.vlad.support.seams import engine_of

PROGRAM = """
(define (f x)
  (let loop ((i 0) (a x) (b 1))
    (if (= i 12) (* a b)
        (loop (+ i 1) (sin (+ a (* b x)))
              (let ((g (lambda (y) (* y a)))) (+ b (g 0.1)))))))
"""


def _setup() -> tuple[Any, Any]:
    engine = engine_of("interpreter", PROGRAM, None)
    return the_paper.Paper(engine.evaluator, 1), engine.linker.function("f")


def _driven() -> tuple[float, float]:
    text = PROGRAM + "(checkpoint-*j f 0.7 1)"
    return engine_of("interpreter", text, logarithmic(stage=50)).evaluate(0)[0]


def test_a_resumed_interruption_gives_the_value() -> None:
    paper, f = _setup()
    whole = paper.evaluator.apply(f, 0.7)
    for steps in (1, 2, 17, whole.steps - 1):
        capsule = paper.interrupt(f, 0.7, steps)
        rest = paper.apply(the_paper.R, capsule)
        assert isinstance(rest, the_paper.Done)
        assert (rest.value, rest.steps) == (whole.value, whole.steps - steps)


def test_a_capsule_can_be_made_to_interrupt_again() -> None:
    paper, f = _setup()
    inner = the_paper.Interrupting(the_paper.Interrupting(f, 200), 100)
    first = paper.apply(inner, 0.7)
    assert not hasattr(first, "value")
    second = paper.apply(the_paper.R, first)
    assert not hasattr(second, "value")
    rest = paper.apply(the_paper.R, second)
    assert isinstance(rest, the_paper.Done)
    whole = paper.evaluator.apply(f, 0.7)
    assert rest.value == whole.value


@pytest.mark.parametrize("alpha", [40, 100, 10_000])
def test_figures_18_26_and_27_agree_with_the_driver(alpha: int) -> None:
    paper, f = _setup()
    steps = paper.primops(f, 0.7)
    expected = _driven()
    results = [
        paper.bisection(f, 0.7, 1.0, alpha, steps),
        paper.binary(f, 0.7, 1.0, alpha, (4, 3), steps),
        paper.treeverse(f, 0.7, 1.0, alpha, (4, 3), (0, 0, steps)),
    ]
    for value, gradient in results:
        assert value == expected[0]
        assert gradient == pytest.approx(expected[1], rel=1e-12)


def test_a_wrong_cotangent_is_noticed() -> None:
    paper, f = _setup()
    steps = paper.primops(f, 0.7)
    _, gradient = paper.bisection(f, 0.7, 1.001, 40, steps)
    assert gradient != pytest.approx(_driven()[1], rel=1e-12)


def test_the_split_lies_inside_the_interval() -> None:
    assert the_paper.mid(3, 2, 0, 10) == 4
    assert all(
        0 < the_paper.mid(d, t, 0, 2) < 2 for d in range(1, 5) for t in range(1, 5)
    )
