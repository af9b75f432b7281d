"""Predictions: plans times sizes, each told in a few seconds or refused by name.

The oracle is the clock, and what no run can go below.
"""

import signal
from contextlib import contextmanager
from time import process_time

import pytest

import retape
from retape import BudgetError, PlanError
from tests.schedule.numbers import optimal_advances

SIZES = [0, 1, 10**3, 10**6, 10**12, 10**18]
SECONDS = 20
BOTH = {"state", "tape"}
FAR = retape.Tier("far", 40, 3, 3)
PLANS = {
    "one snapshot": retape.fixed_space(snapshots=1),
    "snapshots": retape.fixed_space(snapshots=7),
    "many": retape.fixed_space(snapshots=10**12),
    "stages": retape.fixed_space(snapshots=7, stage=10**5),
    "bisection": retape.fixed_space(snapshots=7, split="bisection"),
    "treeverse": retape.fixed_space(snapshots=7, split="treeverse"),
    "many by treeverse": retape.fixed_space(snapshots=10**4, split="treeverse"),
    "tapes": retape.fixed_space(snapshots=7, store=BOTH),
    "one tape": retape.fixed_space(snapshots=1, store=BOTH),
    "many tapes": retape.fixed_space(snapshots=10**4, store=BOTH),
    "all tapes": retape.fixed_space(snapshots=10**40, store=BOTH),
    "once": retape.fixed_time(sweeps=1),
    "five times": retape.fixed_time(sweeps=5),
    "five halvings": retape.fixed_time(sweeps=5, split="bisection"),
    "logarithmic": retape.logarithmic(),
    "logarithmic treeverse": retape.logarithmic(split="treeverse"),
    "segments": retape.segments(),
    "bytes": retape.within("1 MB"),
    "memory and disk": retape.tiers(memory=3, disk=40),
    "disk alone": retape.tiers(memory=0, disk=2),
    "large tiers": retape.tiers(memory=10**4, disk=10**9),
    "tiers in bytes": retape.tiers(memory="100 kB", disk="1 GB"),
    "three tiers": retape.tiers(
        levels=(retape.Tier("near", 3), retape.Tier("host", 9, 1, 1), FAR)
    ),
}
LARGE = (
    *("treeverse", "many by treeverse", "logarithmic treeverse", "tapes", "many tapes"),
    *("memory and disk", "large tiers", "tiers in bytes", "three tiers"),
)
BYTES = {"no bytes": (None, None), "small tapes": (1000, 7), "small states": (7, 1000)}


@contextmanager
def in_time(seconds=SECONDS):
    """What takes longer than it may ends in an error, and not in a night."""

    def stop(*_):
        raise AssertionError(f"no answer within {seconds} processor seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.slow("one tape-no bytes", "one tape-small tapes", "one tape-small states")
@pytest.mark.parametrize("sizes", BYTES)
@pytest.mark.parametrize(
    "plan",
    [pytest.param(p, marks=[pytest.mark.slow] if p in LARGE else []) for p in PLANS],
)
def test_every_prediction_is_told_in_time_or_refused_by_name(plan, sizes):
    told = 0
    for n in SIZES:
        with in_time():
            try:
                found = PLANS[plan].predict(n, *BYTES[sizes])
            except (PlanError, BudgetError) as refused:
                assert any(word in str(refused) for word in ("Pass", "possible is")), (
                    refused
                )
                continue
        told += 1
        assert found.taped == n and type(found.advances) is int
        kept = found.kept_tapes
        slots, stages = found.peak_snapshots, found.reverses
        if slots:
            fewest = optimal_advances(stages, slots) - kept
            assert found.advances >= fewest
        if found.peak_bytes is not None and PLANS[plan].budget:
            assert found.peak_bytes <= PLANS[plan].budget
    assert told or BYTES[sizes] == (None, None)


def test_the_clock_stops_what_takes_too_long():
    began = process_time()
    with pytest.raises(AssertionError, match="no answer"), in_time(0.1):
        while process_time() < began + 2:
            pass
