"""Golden programs: the same output and the same steps in all three implementations."""

import pytest

from tests.engines.vlad.support.cases import (
    ALL,
    ENGINES,
    FILES,
    Case,
    bench,
    read_cases,
    same_output,
)

LONG = {"arithmetic.cases", "derivatives.cases", "vectors.cases"}
"""Those that the C compiler takes more than two seconds for."""

CELLS = [
    pytest.param(
        file, name, marks=[pytest.mark.slow] * (name == "compiled" and file in LONG)
    )
    for file in FILES
    for name in ENGINES
]


@pytest.mark.slow("forms.cases-hybrid", "products.cases-compiled")
@pytest.mark.parametrize(("file", "name"), CELLS)
def test_output_and_steps_are_golden(file: str, name: str) -> None:
    wrong = [
        (case.text, output, steps)
        for case in read_cases(file)[1]
        for output, steps in [bench(file, name).run(case)]
        if not is_golden(case, output, steps)
    ]
    assert wrong == []


def is_golden(case: Case, output: str, steps: int | None) -> bool:
    if case.expected.startswith("!"):
        return output.startswith(case.expected)
    return same_output(output, case.expected) and steps == case.steps


def test_one_step_too_many_is_noticed() -> None:
    case = next(each for each in ALL if each.steps)
    assert is_golden(case, case.expected, case.steps)
    assert not is_golden(case, case.expected, (case.steps or 0) + 1)


def test_there_are_enough_cases() -> None:
    assert len(ALL) >= 150


def test_the_comparison_notices_a_wrong_digit() -> None:
    assert same_output("(1 0.3)", "(1 0.30000000000000004)")
    assert not same_output("(1 0.3)", "(1 0.300001)")
    assert not same_output("(1 2)", "(1 . 2)")
