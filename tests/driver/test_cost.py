"""States observed along a run, and costs beside what else a run has.

Values and gradients of costs are in the judges (`with_costs` and its like).
"""

import pytest

import retape
from tests.judges.core.programs import formula, with_costs
from tests.judges.core.test_plans import STEPS, call, check


@pytest.mark.parametrize("dies", [5, 20, 26, 40])
def test_states_since_the_last_snapshot_are_observed_again_by_the_next_process(
    dies, tmp_path
):
    calls = 0

    def mortal(x, k):
        nonlocal calls
        calls += 1
        if calls == dies:
            raise KeyError
        return formula(x, k)

    def seen_by(step):
        seen, program = [], with_costs()
        program.step = step
        found = None
        try:
            found = call(
                program,
                retape.fixed_space(snapshots=4, stage=1),
                "disk",
                tmp_path,
                observe=lambda x, k: seen.append(k),
            )
        except KeyError:
            pass
        return seen, found, program

    before, died, _ = seen_by(mortal)
    seen, found, program = seen_by(formula)
    assert died is None and found.report.resumed
    check(program, found)
    if before[-1] == STEPS:
        assert seen == []
    else:
        assert seen == list(range(seen[0], STEPS + 1))
        assert seen[0] <= before[-1] + 1


def test_measured_memory_is_beside_a_prediction():
    found = retape.measure(
        retape.Program(lambda x, k: x + 1, lambda x, k, g: g, done=lambda x: x >= 20),
        0.0,
        seed=lambda x: 1.0,
        plan=retape.tiers(memory=1, disk=2),
        store=retape.MemoryStore(),
    )
    assert found.report.memory is not None
