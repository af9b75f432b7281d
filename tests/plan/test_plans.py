"""Plans: what follows from what, bytes, budgets, and every refusal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retape
from tests.schedule.numbers import beta, counts_of, optimal_advances

RECORDS = {
    "snapshots": ({"snapshots": 4}, retape.fixed_space(snapshots=4)),
    "stages": (
        {"snapshots": 3, "stage": 5, "split": "treeverse"},
        retape.fixed_space(snapshots=3, stage=5, split="treeverse"),
    ),
    "sweeps": ({"sweeps": 3}, retape.fixed_time(sweeps=3)),
    "one sweep": ({"sweeps": 1, "stage": 7}, retape.segments(stage=7)),
    "one sweep, fixed": ({"sweeps": 1}, retape.fixed_time(sweeps=1)),
    "bytes": ({"memory": "1 kB"}, retape.within(1000)),
    "nothing": ({}, retape.logarithmic()),
    "host": ({"offload": "host"}, retape.logarithmic(offload="host")),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_short_ways_make_the_one_record(name):
    options, plan = RECORDS[name]
    assert retape.Plan(**options) == plan and type(plan) is retape.Plan
    assert eval(repr(plan)) == plan and hash(plan) == hash(retape.Plan(**options))


@pytest.mark.parametrize("n", [2, 3, 10, 97, 1000])
def test_each_plan_keeps_what_it_fixes(n):
    assert retape.fixed_space(snapshots=5).resolve(n).d <= 5
    for t in (1, 2, 4):
        alpha, d, sweeps = retape.fixed_time(sweeps=t).resolve(n)
        assert sweeps is not None and sweeps <= t
        assert d == 1 or beta(d - 1, t) * alpha < n
        assert (retape.fixed_time(sweeps=t, split="bisection").resolve(n).t or 0) <= t
    alpha, d, t = retape.logarithmic(stage=2).resolve(n)
    assert alpha == 2 and t is not None and t <= max(1, d)
    assert retape.segments(stage=1).resolve(n).t == 1


def test_the_default_stage_gives_the_tape_twice_the_bytes_of_the_snapshots():
    plan = retape.fixed_space(snapshots=20)
    assert plan.resolve(10**6, 1000, 50).alpha == 2 * 20 * 1000 // 50
    assert plan.resolve(10**6).alpha == 1
    assert plan.resolve(10**6, 1, 10**6).alpha == 1
    assert plan.resolve(100, 1000, 0) == (100, 0, 0)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.integers(1, 900), st.integers(1, 90), st.integers(1, 90))
def test_segments_have_the_least_peak_of_all_stage_lengths(n, w, r):
    def peak(alpha):
        return (-(-n // alpha) - 1) * w + alpha * r

    alpha = retape.segments().resolve(n, w, r).alpha
    assert peak(alpha) == min(peak(a) for a in range(1, n + 1))


@pytest.mark.slow
@given(st.integers(2, 300), st.integers(2, 4), st.integers(1, 50), st.integers(1, 50))
def test_fixed_time_has_the_least_peak_of_all_stage_lengths(n, t, w, r):
    peaks = []
    for a in range(1, n + 1):
        d = 0
        while beta(d, t) * a < n:
            d += 1
        peaks.append(d * w + a * r)
    alpha, d, _ = retape.fixed_time(sweeps=t).resolve(n, w, r)
    assert d * w + alpha * r == min(peaks)


@pytest.mark.slow
@given(
    st.integers(1, 120), st.integers(1, 40), st.integers(1, 40), st.integers(0, 3000)
)
def test_within_is_the_best_of_all_plans_that_fit(n, w, r, extra):
    budget = min(w + r, n * r) + extra
    prediction = retape.within(budget).predict(n, w, r)
    assert prediction.peak_bytes is not None and prediction.peak_bytes <= budget
    best = 0 if n * r <= budget else None
    for d in range(1, n):
        for alpha in range(1, n + 1):
            if d * w + alpha * r <= budget:
                cost = alpha * optimal_advances(-(-n // alpha), d)
                best = cost if best is None else min(best, cost)
    assert prediction.advances == best


@settings(max_examples=8)
@given(
    st.integers(2, 10**6), st.integers(4, 30), st.integers(1, 60), st.integers(0, 9000)
)
def test_within_finds_the_best_of_thousands_of_snapshots(n, w, r, extra):
    budget = w + r + extra
    if n * r <= budget:
        return
    best = None
    for d in range(1, min(n, (budget - r) // w + 1)):
        longest = (budget - d * w) // r
        # Shorter stages may waste less of the last one.
        for alpha in range(longest, max(0, longest - 4), -1):
            cost = alpha * optimal_advances(-(-n // alpha), d)
            best = cost if best is None else min(best, cost)
    alpha, d, _ = retape.within(budget).resolve(n, w, r)
    assert d * w + alpha * r <= budget
    assert best is not None and alpha * optimal_advances(-(-n // alpha), d) <= best


@pytest.mark.parametrize(
    ("n", "w", "r", "budget", "alpha", "d"),
    [(31, 3, 2, 19, 4, 3), (36, 3, 1, 11, 4, 2), (32, 9, 5, 52, 4, 3)],
)
def test_within_takes_a_shorter_stage_that_leaves_less_empty(n, w, r, budget, alpha, d):
    assert retape.within(budget).resolve(n, w, r)[:2] == (alpha, d)
    longest = (budget - d * w) // r
    advances = longest * optimal_advances(-(-n // longest), d)
    assert retape.within(budget).predict(n, w, r).advances < advances


def test_within_large_budgets_is_quick_and_keeps_to_them(monkeypatch):
    asked = 0

    def counted(stages, snapshots):
        nonlocal asked
        asked += 1
        return optimal_advances(stages, snapshots)

    monkeypatch.setattr("retape.plan._budget_search.optimal_advances", counted)
    for n, w, r in [(10**9, 800, 2400), (10**7, 8000, 24000), (10**12, 8, 8)]:
        prediction = retape.within("6 MB").predict(n, w, r)
        assert prediction.peak_bytes is not None
        assert prediction.peak_bytes <= 6 * 10**6
    # 750,000 numbers of snapshots are possible in the last one alone.
    assert asked < 50_000


def test_the_least_budget_has_stages_of_one_step():
    for n, least in [(100, 30), (1, 20), (None, 30)]:
        assert retape.within(least).resolve(n, 10, 20).alpha == 1


def test_within_halves_the_budget_when_the_length_is_unknown():
    alpha, d, t = retape.within(1000).resolve(None, 10, 20)
    assert (alpha, d, t) == (25, 50, None)
    for budget in range(30, 400):
        alpha, d, _ = retape.within(budget).resolve(None, 10, 20)
        assert alpha >= 1 and d >= 1 and alpha * 20 + d * 10 <= budget


def test_plans_without_a_length():
    assert retape.fixed_space(snapshots=3).resolve(None) == (1, 3, None)
    assert retape.logarithmic(stage=4).resolve(None).alpha == 4
    d = retape.logarithmic().resolve(None).d
    assert beta(d, d) >= 1 << 40


def test_bytes_are_read_exactly_and_written_rounded_up():
    assert retape.within("512 MiB").limit == 512 * 2**20
    assert retape.within("6MB").limit == 6 * 10**6
    assert retape.within("1.5 kb").limit == 1500


def test_a_prediction_reads_well():
    text = str(retape.fixed_space(snapshots=2).predict(6, 8, 16))
    assert text == (
        "6 steps in 3 stages of at most 2; 4 advances (each step at most 1 times), "
        "2 stores, 2 snapshots, peak 48 B"
    )


# Snapshots in the host's memory -------------------------------------------------------

MAKERS = {
    "fixed_space": lambda **o: retape.fixed_space(snapshots=5, **o),
    "fixed_time": lambda **o: retape.fixed_time(sweeps=2, **o),
    "logarithmic": retape.logarithmic,
    "segments": retape.segments,
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_on_the_host_is_told_apart(name: str) -> None:
    near = MAKERS[name](stage=3).predict(200, 8, 40)
    far = MAKERS[name](stage=3, offload="host").predict(200, 8, 40)
    assert counts_of(far) == counts_of(near)
    assert far.host_bytes == 8 * far.peak_snapshots > 0
    assert far.peak_bytes is not None and near.peak_bytes is not None
    assert far.peak_bytes + far.host_bytes == near.peak_bytes
    assert near.host_bytes is None
    assert str(far).endswith(
        f"peak {far.peak_bytes} B and {far.host_bytes} B on the host"
    )


def test_a_tape_is_weighed_against_what_the_device_holds() -> None:
    for near, far in (
        (
            retape.fixed_space(snapshots=9),
            retape.fixed_space(snapshots=9, offload="host"),
        ),
        (retape.logarithmic(), retape.logarithmic(offload="host")),
    ):
        assert (
            near.resolve(1000, 100, 10).alpha > far.resolve(1000, 100, 10).alpha == 20
        )
        assert far.resolve(1000).alpha == 1


def test_tiers_of_huge_runs_are_told():
    assert retape.tiers(memory=2, disk=3).predict(10**100).advances > 10**100
