"""Random programs in random budgets: exact, and never above."""

import contextlib
from typing import Any

import pytest
import torch

from retape._errors import BudgetError
from retape.engines.eager.plan._learned import forget_lessons
from retape.torch import recompute
from tests.engines.eager.support.allocator import peak_bytes
from tests.engines.eager.support.random_programs import KINDS, RandomProgram


def once(program: RandomProgram, under: Any) -> tuple[int, list[torch.Tensor]]:
    """The peak of a step, its gradients, statistics and random state."""
    program.reset()

    def job() -> None:
        with under:
            outputs = program()
        torch.autograd.backward(outputs)

    peak = peak_bytes(job)
    grads = [each.grad for each in program.parameters() if each.grad is not None]
    assert program.norm.running_mean is not None
    return peak, [*grads, program.norm.running_mean.clone(), torch.get_rng_state()]


def least(program: RandomProgram) -> int:
    """The least budget that the error of a smaller one names."""
    program.reset()
    with pytest.raises(BudgetError) as caught, recompute(memory=1100):
        outputs = program()
        assert outputs
    return caught.value.least


@pytest.mark.parametrize("seed", range(7))
def test_any_program_is_exact_within_any_budget(seed: int) -> None:
    program = RandomProgram(seed)
    most, plain = once(program, contextlib.nullcontext())
    fewest = least(program)
    for k in range(5):
        budget = fewest + max(0, most - fewest) * k // 4
        forget_lessons()
        for _ in range(3 if k in (0, 2) else 1):
            peak, found = once(program, recompute(memory=budget))
            assert peak <= budget
            assert all(map(torch.equal, found, plain))


def test_the_programs_have_every_kind_of_step() -> None:
    kinds = {step[0] for seed in range(7) for step in RandomProgram(seed).steps}
    assert kinds == set(range(KINDS))
