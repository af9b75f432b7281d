"""What is measured once and used for a whole run."""

from __future__ import annotations

import time
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import retape
from tests.programs import run_program

STEPS = 60


def grows(x: Any, k: int) -> Any:
    return np.concatenate((x, [1.0] * 50))


def stays(x: Any, k: int) -> Any:
    return 0.9 * x


def back(x: Any, k: int, g: Any) -> Any:
    return g[: x.size]


def iterates(many: int) -> Any:
    """A tape of one iterate in the first step, and of more in all others."""

    def tape(x: Any, k: int) -> Any:
        return stays(x, k), [np.zeros(100)] * (1 if k == 0 else many)

    return tape


def told(step: Any, plan: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options.setdefault("store", retape.MemoryStore())
        reverse = back if "tape" not in options else lambda t, k, g: 0.9 * g
        run_program(
            step, reverse, np.ones(100), seed=np.copy, steps=STEPS, plan=plan, **options
        )
    return [str(one.message) for one in caught]


IN_BYTES: dict[str, Any] = {
    "within": retape.within("40 kB"),
    "tiers, memory": retape.tiers(memory="40 kB", disk=4),
    "tiers, disk": retape.tiers(memory=4, disk="40 kB", stage=1),
    "levels": retape.tiers(
        levels=(retape.Tier("memory", "40 kB"), retape.Tier("disk", 4, 5, 5))
    ),
    "chain": retape.chain(
        forward=[1] * STEPS, states=[800] * STEPS, tapes=[800] * STEPS, budget="40 kB"
    ),
}
COUNTED: dict[str, Any] = {
    "fixed space": retape.fixed_space(snapshots=6),
    "tiers": retape.tiers(memory=3, disk=4),
}
ROWS: dict[str, Any] = {
    "states that grow": (grows, {}, "state", 2),
    "tapes that differ": (stays, {"tape": iterates(20)}, "tape", 15),
    "tapes that differ a little": (stays, {"tape": iterates(2)}, "tape", 1.9),
}


@pytest.mark.parametrize("plan", IN_BYTES)
@pytest.mark.parametrize("row", ROWS)
def test_what_outgrows_the_bytes_of_a_plan_is_told_with_the_ratio(plan, row):
    step, options, kind, least = ROWS[row]
    said = told(step, IN_BYTES[plan], **options)
    ratios = [float(one.partition(" times")[0].rpartition(", ")[2]) for one in said]
    assert said and all(one.startswith(f"the {kind} of step") for one in said)
    assert max(ratios) >= least and len(said) < 6


NOTHING_TO_TELL = [
    *((plan, *ROWS[row][:2]) for plan in COUNTED.values() for row in ROWS),
    *((plan, stays, {}) for plan in IN_BYTES.values()),
    *((plan, stays, {"tape": iterates(1)}) for plan in IN_BYTES.values()),
]


@pytest.mark.parametrize(("plan", "step", "options"), NOTHING_TO_TELL)
def test_what_stays_or_has_no_bytes_to_be_outgrown_is_not_told(plan, step, options):
    assert told(step, plan, **options) == []


BUDGETS: dict[str, tuple[Any, int | None]] = {
    "a float": (2472896.4, 2472896),
    "a whole float": (2e6, 2_000_000),
    "NumPy's": (np.float64(2e6), 2_000_000),
    "NumPy's single": (np.float32(2e6), 2_000_000),
    "NumPy's integer": (np.int64(5), 5),
    "an array of one": (np.array(5), 5),
    "a fraction": (Fraction(21, 2), 10),
    "a row": (np.array([5]), None),
    "a complex number": (5j, None),
    "a truth value": (np.True_, None),
    "5,000 digits": (10**5000, None),
    "a text of 5,000 digits": ("9" * 5000 + " B", None),
    "-5,000 digits": (-(10**5000), None),
    "infinity": (float("inf"), None),
    "no number": (float("nan"), None),
    "a part of a byte": (0.5, None),
    "less than nothing": (-3.5, None),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_may_be_any_number_of_bytes(name):
    given, found = BUDGETS[name]
    if found is not None:
        assert retape.within(given) == retape.within(found)
        return
    with pytest.raises(retape.PlanError, match="Pass a"):
        retape.within(given)


def test_records_that_take_long_are_no_large_part_of_a_run(tmp_path, monkeypatch):
    """A disk that takes 10 ms for a record, in a run that wants one every 2 ms."""

    class Slow(retape.DiskStore[Any]):
        records, took = 0, 0.0

        def record(self, record: Any) -> None:
            began = time.monotonic()
            super().record(record)
            Slow.records += 1
            Slow.took += time.monotonic() - began

    monkeypatch.setattr("os.fsync", lambda handle: time.sleep(0.005))
    began = time.monotonic()
    retape.adjoint(
        retape.Program(stays, lambda x, k, g: time.sleep(0.001) or 0.9 * g),
        np.ones(9),
        seed=np.copy,
        steps=300,
        plan=retape.fixed_space(snapshots=3, stage=60),
        store=Slow(tmp_path, every=0.002),
    )
    assert Slow.took < 0.4 * (time.monotonic() - began)
