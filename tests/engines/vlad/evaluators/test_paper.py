"""The paper's figures, as it writes them, against the library's driver."""

import pytest

from retape import driver, logarithmic
from retape.engines.vlad.evaluators._cps_interpreter import Interpreter
from retape.engines.vlad.evaluators._derivatives import Operators
from retape.engines.vlad.evaluators._link import Linker
from retape.engines.vlad.evaluators._machine import Capsule, Done, EvaluatorMachine
from retape.engines.vlad.evaluators._paper import Paper, R, interrupting, mid
from retape.engines.vlad.language._diagnostics import Source
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.values._primitives import PURE, World

PROGRAM = """
(define (f x)
  (let loop ((i 0) (a x) (b 1))
    (if (= i 12) (* a b)
        (loop (+ i 1) (sin (+ a (* b x)))
              (let ((g (lambda (y) (* y a)))) (+ b (g 0.1)))))))
"""


def _setup() -> tuple[Paper, object]:
    program = Session().add(Source("paper", PROGRAM))
    world = World(lambda: None, print)
    evaluator = Interpreter(world)
    operators = Operators(evaluator, lambda machine: machine.finish([]))
    table = {**PURE, **world.table(), **operators.table()}
    f = Linker(program.definitions, table).function("f")
    return Paper(evaluator, 1), f


def _driven(paper: Paper, f: object) -> tuple[float, float]:
    machine = EvaluatorMachine(paper.evaluator, 1, (f, 0.7, 1.0))
    return driver.run(machine, logarithmic(stage=50)).result


def test_a_resumed_interruption_gives_the_value() -> None:
    paper, f = _setup()
    whole = paper.evaluator.apply(f, 0.7)
    assert isinstance(whole, Done)
    for steps in (1, 2, 17, whole.steps - 1):
        capsule = paper.interrupt(f, 0.7, steps)
        rest = paper.evaluator.resume(capsule)
        assert isinstance(rest, Done)
        assert (rest.value, rest.steps) == (whole.value, whole.steps - steps)


def test_a_capsule_can_be_made_to_interrupt_again() -> None:
    paper, f = _setup()
    inner = interrupting(interrupting(f, 200), 100)
    first = paper.evaluator.apply(inner, 0.7)
    assert isinstance(first, Capsule)
    second = paper.evaluator.apply(R, first)
    assert isinstance(second, Capsule)
    rest = paper.evaluator.apply(R, second)
    assert isinstance(rest, Done)
    whole = paper.evaluator.apply(f, 0.7)
    assert isinstance(whole, Done)
    assert rest.value == whole.value


@pytest.mark.parametrize("alpha", [40, 100, 10_000])
def test_figures_18_26_and_27_agree_with_the_driver(alpha: int) -> None:
    paper, f = _setup()
    steps = paper.primops(f, 0.7)
    expected = _driven(paper, f)
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
    assert gradient != pytest.approx(_driven(paper, f)[1], rel=1e-12)


def test_the_split_lies_inside_the_interval() -> None:
    assert mid(3, 2, 0, 10) == 4
    assert all(0 < mid(d, t, 0, 2) < 2 for d in range(1, 5) for t in range(1, 5))
