"""Unknown length: legal, optimal where a policy can be, close to it beyond."""

from fractions import Fraction

import pytest

from retape.schedule import OnlineBinomial, replay
from tests.schedule.brute import best_over_positions, best_split, last_policy
from tests.schedule.numbers import beta, optimal_advances

PLACEMENTS = ("least-cost", "doubling")


def cost(stages, snapshots):
    return optimal_advances(stages, snapshots)


def back(state, length, stage=1):
    """The steps that are advanced on the way back."""
    return OnlineBinomial(state.snapshots, stage).turn_advances(state, length)


def state_at(placement, snapshots, length):
    """The controller of a run that turns out to have `length` stages."""
    state = OnlineBinomial(snapshots, 1, placement).begin()
    for stage in range(length - 1):
        state, _ = state.place(stage)
    return state


def test_least_cost_is_the_offline_optimum_up_to_c_of_s_plus_2():
    for snapshots in range(1, 9):
        for n in range(1, beta(snapshots, 2) + 1):
            counts = replay(OnlineBinomial(snapshots).actions(n), n)
            assert counts.advances == best_split(n, snapshots)[0]


def test_beyond_it_the_optimum_is_not_attained_for_ever():
    for snapshots in (2, 3, 4):
        lengths = range(beta(snapshots, 2) + 1, beta(snapshots, 3) + 1)
        assert any(
            replay(OnlineBinomial(snapshots).actions(n), n).advances
            > best_split(n, snapshots)[0]
            for n in lengths
        )


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_run_that_fits_advances_each_step_once(placement):
    for snapshots in range(1, 12):
        for n in range(1, snapshots + 2):
            counts = replay(OnlineBinomial(snapshots, 1, placement).actions(n), n)
            assert counts.advances == n - 1


def worst_ratio(snapshots, upto):
    state, worst = OnlineBinomial(snapshots).begin(), Fraction(1)
    for n in range(2, upto):
        state, _ = state.place(n - 2)
        total = n - 1 + back(state, n)
        worst = max(worst, Fraction(total, optimal_advances(n, snapshots)))
    return worst


@pytest.mark.parametrize("snapshots", [1, 4, 5, 6, 7, 8, 9, 11, 16, 23])
def test_least_cost_stays_within_a_twentieth_of_the_optimum(snapshots):
    assert worst_ratio(snapshots, 1000) <= Fraction(21, 20)


LIMITS = [(2, Fraction(46, 41), 27), (3, Fraction(19, 18), 37)]


@pytest.mark.parametrize(("snapshots", "limit", "n"), LIMITS)
def test_with_two_or_three_it_is_as_near_as_any_policy_can_be(snapshots, limit, n):
    """A search over all policies: within less than `limit` none gets as far as n."""
    assert worst_ratio(snapshots, 3000) == limit
    assert last_policy(snapshots, limit - Fraction(1, 10**9), n) == n - 1
    assert last_policy(snapshots, limit, n) == n


def test_departures_are_where_the_rule_is_settled_and_evict_something_else():
    for snapshots in range(1, 12):
        state = OnlineBinomial(snapshots).begin()
        for stage in range(300):
            other = state.departures.get(stage)
            if other is not None:
                assert stage >= beta(snapshots, 2) - 1
                assert 1 <= other < snapshots
                assert other != state.cheapest(stage)
            state, _ = state.place(stage)


@pytest.mark.parametrize("snapshots", [2, 3, 5, 8, 16])
def test_doubling_stays_within_half_more(snapshots):
    for n in range(2, 420):
        state = state_at("doubling", snapshots, n)
        total = n - 1 + back(state, n)
        assert total <= 1.5 * optimal_advances(n, snapshots)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_turn_advances_is_what_the_replay_counts(placement):
    for n in (1, 2, 3, 17, 64, 65, 130):
        for stage in (1, 4):
            stages = -(-n // stage)
            state = state_at(placement, 4, stages)
            counts = replay(OnlineBinomial(4, stage, placement).actions(n), n)
            swept = (stages - 1) * stage
            assert counts.advances == swept + back(state, n, stage)


def test_the_turn_is_optimal_over_where_the_snapshots_are():
    for snapshots in (2, 3, 4, 5, 6):
        for n in range(2, 75):
            state = state_at("least-cost", snapshots, n)
            best = best_over_positions(state.positions, n - 1, snapshots, cost)
            assert back(state, n) == best


def test_that_oracle_sees_a_turn_that_is_not_optimal():
    state = state_at("doubling", 4, 126)
    kept = state.positions
    all_kept = sum(
        cost(end - at, 4 - i)
        for i, (at, end) in enumerate(zip(kept, (*kept[1:], 125), strict=True))
    )
    assert best_over_positions(kept, 125, 4, cost) < all_kept
    assert back(state, 126) < all_kept


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_slots_stay_a_permutation(placement):
    state = OnlineBinomial(5, 1, placement).begin()
    for stage in range(300):
        state, placed = state.place(stage)
        assert sorted(state.slots) == list(range(5))
        if placed.slot is not None:
            assert state.slots[len(state.positions) - 1] == placed.slot
            assert state.positions[-1] == stage


def test_doubling_writes_little():
    counts = replay(OnlineBinomial(16, 1, "doubling").actions(4096), 4096)
    state, writes = OnlineBinomial(16, 1, "doubling").begin(), 0
    for stage in range(4095):
        state, placed = state.place(stage)
        writes += placed.slot is not None
    assert writes <= 16 + 8 * 8
    assert counts.stores >= writes


@pytest.mark.parametrize("placement", ["least-cost", "doubling"])
@pytest.mark.parametrize("snapshots", [1, 2, 3, 5, 8])
def test_the_stages_that_are_passed_over_change_nothing(snapshots, placement):
    asked = OnlineBinomial(snapshots, 1, placement).begin()
    passing, p = OnlineBinomial(snapshots, 1, placement).begin(), 0
    for n in range(1, 250):
        # Asked about stages 0, ..., n - 2.
        while (p := passing.next_change(p, n - 1)) < n - 1:
            passing, _ = passing.place(p)
            p += 1
        assert passing == asked
        if placement == "least-cost":
            made = n - 1 + back(asked, n)
            assert OnlineBinomial(snapshots).advances(n) == made
        asked, _ = asked.place(n - 1)


def test_seven_stages_with_two_snapshots_are_as_if_the_length_were_known():
    assert OnlineBinomial(2).advances(7) == optimal_advances(7, 2) == 11
