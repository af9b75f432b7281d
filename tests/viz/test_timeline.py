"""The memory of a run over time: the prediction against an independent measure."""

import io
from dataclasses import replace

import matplotlib
import numpy as np
import pytest

import retape
import retape.viz
from retape import Tier
from retape.schedule import replay
from retape.storage import measure
from retape.viz import timeline
from tests.programs import run_program

SIZE = 20_000
STATE = 8 * SIZE


def measured(plan, **options):
    given = {
        "step": lambda u, k: 1.0001 * u,
        "reverse_step": lambda u, k, g: 1.0001 * g,
        "x0": np.ones(SIZE),
        "seed": lambda u: u,
        "steps": 120,
        "call": retape.measure,
    }
    return run_program(plan=plan, **given | options).report


WAYS = {
    "steps": retape.fixed_space(snapshots=6, stage=1),
    "stages": retape.fixed_space(snapshots=6, stage=10),
    "segments": retape.segments(),
    "tapes": retape.fixed_space(snapshots=6, store={"state", "tape"}, stage=5),
}
# A tape that is read from a disk takes more while it is read, which is not predicted.
PLACES = [(way, on_disk) for way in WAYS for on_disk in (False, True)]
PLACES.remove(("tapes", True))


@pytest.mark.parametrize(("way", "on_disk"), PLACES)
def test_the_heap_has_the_height_that_was_predicted(way, on_disk, tmp_path):
    # What is loaded at the first use of a disk is none of a run's.
    measure(tmp_path, nbytes="1 kB")
    store = retape.DiskStore(tmp_path) if on_disk else None
    memory = measured(WAYS[way], store=store).memory
    assert memory.predicted[-1].work == memory.measured[-1].work
    assert 0.85 < memory.measured_peak / memory.predicted_peak < 1.05


def test_a_step_that_keeps_its_states_leaves_the_areas():
    kept = []

    def step(u, k):
        kept.append(1.0001 * u)
        return kept[-1].copy()

    memory = measured(retape.fixed_space(snapshots=4), step=step, steps=60).memory
    assert memory.measured_peak > 3 * memory.predicted_peak


def test_snapshots_on_disk_are_no_memory(tmp_path):
    memory = measured(
        retape.fixed_space(snapshots=30, stage=1), store=retape.DiskStore(tmp_path)
    ).memory
    assert max(each.snapshots for each in memory.predicted) == 0
    assert max(each.disk for each in memory.predicted) == 30 * STATE
    assert memory.measured_peak < 15 * STATE


def test_a_run_of_unknown_length_has_the_schedule_that_it_followed():
    report = measured(
        retape.logarithmic(), steps=None, done=lambda u: bool(u[0] > 1.005)
    )
    assert report.memory.predicted_peak > 0
    assert report.memory.measured_peak < 1.1 * report.memory.predicted_peak


def test_a_budget_is_in_the_picture():
    report = measured(retape.within(30 * STATE))
    assert report.memory.budget == 30 * STATE
    figure = timeline(report)
    axes = figure.axes[0]
    assert any("budget" in text.get_text() for text in axes.texts)
    # A run whose first measure is later than step 0: the label is in the picture still.
    axes.set_xlim(left=2)
    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg")
    assert "budget" in drawn.getvalue()


def test_processes_cannot_be_measured():
    with pytest.raises(retape.PlanError, match="heaps of other processes are not seen"):
        measured(retape.fixed_space(snapshots=3), hidden=True)


def test_what_was_not_measured_is_refused_by_name():
    report = measured(None, call=retape.adjoint, steps=2)
    with pytest.raises(retape.PlanError, match="`Report` holds nothing of its run"):
        timeline(report)


@pytest.mark.parametrize(
    "plan",
    [
        retape.fixed_space(snapshots=5, stage=1),
        retape.fixed_space(snapshots=4, store={"state", "tape"}, stage=1),
        retape.tiers(levels=[Tier("memory", 2), Tier("disk", 9, 5, 5)], stage=1),
    ],
    ids=["states", "tapes", "tiers"],
)
def test_a_prediction_agrees_with_the_replay_of_the_schedule(plan):
    moments = measured(plan, store=retape.MemoryStore()).memory.predicted
    schedule = plan.schedule(120, STATE, STATE)
    counts = replay(schedule, schedule.length)
    assert moments[-1].work == counts.advances + counts.taped
    most = max(each.snapshots + each.disk for each in moments)
    if not counts.kept_tapes:
        assert most == counts.peak_snapshots * STATE


@pytest.mark.slow
def test_long_runs_are_thinned_and_keep_their_peak():
    def step(u, k):
        _ = np.ones(5_000_000 * (k == 1234))
        return 1.0001 * u

    plan, x0 = retape.fixed_space(snapshots=9, stage=1), np.ones(100)
    memory = measured(plan, step=step, x0=x0, steps=5_000).memory
    assert len(memory.predicted) < 4096 and len(memory.measured) < 4096
    most = max(each.snapshots for each in memory.predicted)
    assert most == plan.predict(5_000).peak_snapshots * x0.nbytes
    assert 40_000_000 < memory.measured_peak < 45_000_000
    work = plan.predict(5_000).advances + 5_000
    assert work - 100 < memory.measured[-1].work <= work


def test_a_bar_is_told_while_a_run_is_measured():
    told: list[object] = []
    measured(retape.fixed_space(snapshots=4), progress=told.append)
    assert told[-1].reversed == 120


def test_a_trace_without_a_prediction_is_a_line():
    memory = measured(None).memory
    figure = timeline(replace(memory, predicted=()))
    labels = [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
    assert labels == [memory.source]
