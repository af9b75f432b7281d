"""Under stress: a nursery of a few hundred words, collections, slices of few steps."""

import pytest

from retape.engines.vlad.compiler.load import _native
from tests.engines.vlad.support.cases import Bench, read_cases, same_output
from tests.engines.vlad.support.seams import compile_with


@pytest.fixture
def tiny_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "NURSERY_WORDS", 0)
    compile_with(monkeypatch, "-DRESERVE=((size_t)64)")


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_nursery")
@pytest.mark.parametrize("file", ["derivatives", "forms", "vectors"])
def test_collecting_all_the_time_changes_nothing(file: str) -> None:
    file += ".cases"
    bench = Bench(file, "compiled")
    native = bench.engine.native  # type: ignore[attr-defined]
    native.note_peaks(exact=True)
    for case in read_cases(file)[1]:
        output, steps = bench.run(case)
        if not case.expected.startswith("!"):
            assert same_output(output, case.expected), case.text
            assert steps == case.steps
        native.measured()  # which collects
    assert native.measured().collections > 100


@pytest.mark.slow
@pytest.mark.parametrize("file", ["arithmetic", "derivatives", "forms", "vectors"])
def test_slices_of_few_steps_change_nothing(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("-DSLICE=3", "-DRUN_SLICE=3", "-DPAUSE_SECONDS=0")
    compile_with(monkeypatch, *short)
    file += ".cases"
    bench = Bench(file, "compiled")
    for case in read_cases(file)[1]:
        output, steps = bench.run(case)
        if not case.expected.startswith("!"):
            assert same_output(output, case.expected), case.text
            assert steps == case.steps
