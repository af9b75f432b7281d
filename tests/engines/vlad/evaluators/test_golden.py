"""Golden programs: the same output and the same steps in all three implementations."""

import pytest

from tests.engines.vlad.support.cases import ALL, ENGINES, Case, bench, same_output


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("case", ALL, ids=lambda c: f"{c.file}-{c.index}")
def test_output_and_steps_are_golden(case: Case, name: str) -> None:
    output, steps = bench(case.file, name).run(case)
    if case.expected.startswith("!"):
        assert output.startswith(case.expected)
    else:
        assert same_output(output, case.expected)
        assert steps == case.steps


def test_there_are_enough_cases() -> None:
    assert len(ALL) >= 150


def test_the_comparison_notices_a_wrong_digit() -> None:
    assert same_output("(1 0.3)", "(1 0.30000000000000004)")
    assert not same_output("(1 0.3)", "(1 0.300001)")
    assert not same_output("(1 2)", "(1 . 2)")
