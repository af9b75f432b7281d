"""A GPT of twelve layers under FSDP2: each process holds budgets of its own."""

import pytest
from benchmarks.torch import sharded


@pytest.mark.slow
def test_a_sharded_gpt_holds_its_budgets_to_the_bit() -> None:
    found = sharded.sweep(layers=12, width=16, length=16, budgets=3, runs=2)
    assert len(found) == 2
    for rows in found:
        assert [row.budget for row in rows if row.peak > row.budget] == []
        # What FSDP holds is in the budget. A thread of Gloo may hold its copy of a
        # buffer for a moment longer.
        beside = [(row.budget, row.allocated, row.sharding // 4) for row in rows]
        assert [each for each in beside if each[1] > each[0] + each[2]] == []
        assert all(row.same_bits for row in rows)
        again = [row.again for row in rows]
        assert again == sorted(again, reverse=True) and again[0] > 1 > again[-1]
    # Texts are longer in the second process, and so is the least.
    assert found[0][0].budget < found[1][0].budget
