"""Every hard program, bit for bit as plain PyTorch runs it."""

import contextlib
import random
import re

import pytest
import torch

from retape import torch as retape_torch
from retape._errors import BudgetError
from tests.engines.eager.support.programs import PROGRAMS, Program

NAMES = list(PROGRAMS)


def outcome(program: Program, under: object) -> tuple[list[torch.Tensor], object]:
    tensors = program(lambda: under)  # type: ignore[arg-type, return-value]
    return [*tensors, torch.get_rng_state()], random.getstate()


def assert_same(one: object, other: object) -> None:
    (tensors, state), (tensors2, state2) = one, other  # type: ignore[misc]
    assert state == state2
    assert len(tensors) == len(tensors2)
    for number, (a, b) in enumerate(zip(tensors, tensors2, strict=True)):
        assert torch.equal(a, b), f"tensor {number} differs"


def least(program: Program) -> int:
    """The budget that the error messages lead to."""
    memory = 1
    while True:
        try:
            under = retape_torch.recompute(memory=memory)
            program(lambda under=under: under)  # type: ignore[misc]
            return memory
        except BudgetError as error:
            found = re.search(r"at least `(\d+)`", str(error))
            assert found is not None
            assert int(found.group(1)) > memory
            memory = int(found.group(1))


def test_there_are_many_programs() -> None:
    assert len(NAMES) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_exact_with_ample_memory(name: str) -> None:
    plain = outcome(PROGRAMS[name], contextlib.nullcontext())
    assert_same(plain, outcome(PROGRAMS[name], retape_torch.recompute(memory="1GB")))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_exact_with_the_least_memory(name: str) -> None:
    program = PROGRAMS[name]
    plain = outcome(program, contextlib.nullcontext())
    memory = least(program)
    for budget in (memory, 2 * memory):
        assert_same(plain, outcome(program, retape_torch.recompute(memory=budget)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("snapshots", [1, 3])
def test_gradients_are_exact_with_few_snapshots(name: str, snapshots: int) -> None:
    program = PROGRAMS[name]
    under = retape_torch.recompute(snapshots=snapshots, stage=6, verify=True)
    assert_same(outcome(program, contextlib.nullcontext()), outcome(program, under))


def test_the_comparison_sees_one_bit() -> None:
    a = torch.ones(3)
    b = a.clone()
    b[1] = torch.nextafter(b[1], torch.tensor(2.0))
    with pytest.raises(AssertionError, match="tensor 0 differs"):
        assert_same(([a], 0), ([b], 0))
