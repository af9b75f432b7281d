"""What `retape.adjoint` looks at while it runs."""

import numpy as np
import pytest

import retape
from tests.programs import run_program


def call(step, reverse_step, **options):
    options = {"seed": np.ones_like} | options
    return run_program(step, reverse_step, **options)


def scale(x, k):
    x *= 1.01
    return x


def test_a_random_step_is_found_and_one_in_place_is_none():
    plan = retape.fixed_space(snapshots=2)
    options = {"x0": np.ones(2), "steps": 20, "plan": plan, "verify": "full"}
    right = call(scale, lambda x, k, g: 1.01 * g, **options)
    assert np.allclose(right.cotangent, 1.01**20)
    source = np.random.default_rng(0)
    with pytest.raises(retape.DeterminismError, match="^step 8 gave another state"):
        call(lambda x, k: x + source.normal(), lambda x, k, g: g, **options)


@pytest.mark.parametrize("stage", [6, 30])
def test_a_step_that_is_run_again_only_for_a_tape_is_looked_at(stage):
    """Each step is advanced once at most here: what could differ is on the tapes."""
    source, calls = np.random.default_rng(0), 0

    def moody(x, k):
        nonlocal calls
        calls += 1
        return x + (source.normal() if k == 9 and calls > 30 else 1.0)

    def verified(verify):
        nonlocal calls
        calls = 0
        return call(
            moody,
            lambda x, k, g: g + k,
            x0=np.ones(2),
            steps=60,
            plan=retape.fixed_space(snapshots=20, stage=stage),
            verify=verify,
        )

    assert verified(None).report.advances < 60
    for verify in ("full", "cheap"):
        with pytest.raises(retape.DeterminismError, match="^step 9 gave another state"):
            verified(verify)
