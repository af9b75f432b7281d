"""Runs that end early, at a signal or a time limit, and go on with the same bits."""

import contextlib
import functools
import signal
import subprocess
import sys
import threading

import pytest

import retape
from retape import DiskStore, PlanError, RunInterrupted
from retape.driver import ToyMachine, run
from tests.driver.toys import Watched, by_itself, toys_at
from tests.judges.core.programs import formula, pure
from tests.judges.core.test_plans import call, check
from tests.programs import run_program

N = 60
STAGES = retape.fixed_space(snapshots=3, stage=4)


def run_for(path, stop_at=None, how=None, kind="disk", plan=STAGES, known=True):
    """A run; `how` is called at the `stop_at`-th step that it makes, taped or not."""
    made, program = 0, pure()

    def step(x, k):
        nonlocal made
        made += 1
        if how is not None and made == stop_at:
            how()
        return formula(x, k)

    program.step = step
    found = call(program, plan, kind, path, known=known, steps=N)
    check(program, found, N)
    return found, made


@pytest.fixture(scope="module")
def whole():
    return run_for(None, kind="memory")


# Two steps show that the program is the same.
@pytest.mark.parametrize(
    ("kind", "known", "each"),
    [
        *(("disk", True, 5), ("near", False, 5)),
        *(("disk", False, 41), ("near", True, 41)),
    ],
)
def test_a_run_that_is_ended_again_and_again_has_the_same_bits(
    tmp_path, whole, kind, known, each
):
    stopped, result = 0, None
    while result is None:
        try:
            with retape.interruptible() as limit:
                how = functools.partial(limit.request, "a test")
                result, _ = run_for(tmp_path, each, how, kind, known=known)
        except RunInterrupted as error:
            stopped += 1
            assert error.reason == "a test" and stopped < 400
    assert stopped and result.report.resumed
    assert result.state.tobytes() == whole[0].state.tobytes()
    assert result.cotangent.tobytes() == whole[0].cotangent.tobytes()


def test_nothing_is_lost_when_a_run_is_ended_within_an_advance(tmp_path, monkeypatch):
    """One long advance: there is no snapshot of the plan's on the way."""
    monkeypatch.setattr("retape.driver._early_end._PART", 0.0)
    plan = retape.fixed_space(snapshots=1, stage=4)
    alone, made = run_for(tmp_path, kind="memory", plan=plan)
    total = 0
    with pytest.raises(RunInterrupted, match=r"before step 2\d of 60 steps"):
        with retape.interruptible() as limit:

            def how():
                nonlocal total
                total += 30
                limit.request("a test")

            run_for(tmp_path, 30, how, plan=plan)
    result, more = run_for(tmp_path, plan=plan)
    # Each process looks at the first step, and one of them at what the other has left.
    assert made <= total + more <= made + 4
    assert result.cotangent.tobytes() == alone.cotangent.tobytes()


def test_a_run_to_an_unknown_end_is_ended_within_a_stage(tmp_path, monkeypatch):
    """It goes on from the last stage that was begun before."""
    monkeypatch.setattr("retape.driver._early_end._PART", 0.0)
    plan = retape.fixed_space(snapshots=2, stage=20)
    alone, _ = run_for(tmp_path, kind="memory", plan=plan, known=False)
    with pytest.raises(RunInterrupted, match="before step 4[1-9] of an unknown"):
        with retape.interruptible() as limit:
            how = functools.partial(limit.request, "a test")
            run_for(tmp_path, 46, how, plan=plan, known=False)
    result, _ = run_for(tmp_path, plan=plan, known=False)
    assert result.report.resumed
    assert result.cotangent.tobytes() == alone.cotangent.tobytes()


def test_a_signal_ends_a_run_and_the_handlers_are_as_they_were(tmp_path):
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(RunInterrupted, match="ended by SIGTERM, on the way") as got:
            with retape.interruptible(), retape.interruptible(signals=["SIGUSR1"]):
                with retape.interruptible(time_limit=1e9):
                    how = functools.partial(signal.raise_signal, signal.SIGTERM)
                    run_for(tmp_path, 10, how)
        assert got.value.exit_code == 75 and not came
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        # With no run to heed it, it does what it would have done.
        with retape.interruptible():
            signal.raise_signal(signal.SIGTERM)
            assert not came
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_second_signal_kills():
    text = (
        "import retape, signal\n"
        "with retape.interruptible():\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('first', flush=True)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('second', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout == "first\n" and done.returncode == -signal.SIGTERM


def tell_time(monkeypatch, clock):
    monkeypatch.setattr("retape.driver._loop.perf_counter", clock)
    monkeypatch.setattr("retape.driver._resume.perf_counter", clock)


def test_a_time_limit_counts_what_the_next_action_will_take(tmp_path, monkeypatch):
    """A clock that each step moves on by a second; storage takes no time."""
    limit = retape.interruptible(time_limit=100)
    now = [0.0]
    limit._clock = lambda: now[0]
    tell_time(monkeypatch, limit._clock)

    def take_time(called, capsule, steps):
        now[0] += {"advance": 1, "reverse": 3}[called] * steps

    machine = Watched(200, take_time)
    plan = retape.fixed_space(snapshots=9, stage=5)
    with pytest.raises(RunInterrupted, match="the time limit of 100 s"), limit:
        run(machine, plan, store=toys_at(tmp_path), label="a toy")
    assert 90 < now[0] <= 100
    resumed = run(ToyMachine(200), plan, store=toys_at(tmp_path), label="a toy")
    assert resumed.result == by_itself(200) and resumed.report.resumed


def test_a_limit_that_no_stage_fits_in_is_refused(tmp_path, monkeypatch):
    """Else job after job would begin the stage, and none would end it."""
    now = [0.0]
    tell_time(monkeypatch, lambda: now[0])

    def step(x, k):
        now[0] += 0.2
        return x + 1.0

    def job():
        limit = retape.interruptible(time_limit=10)
        limit._clock = lambda: now[0]
        with limit:
            run_program(
                step,
                lambda x, k, g: g,
                1.0,
                seed=lambda x: x,
                steps=80,
                plan=retape.fixed_space(snapshots=1, stage=60),
                store=DiskStore(tmp_path),
                key="a test",
            )

    jobs = 0
    with pytest.raises(PlanError, match=r"stage of 60 .* 12 s.*with `stage=25`"):
        while jobs < 5:
            with contextlib.suppress(RunInterrupted):
                jobs += 1
                job()
    assert jobs < 5


def test_another_thread_asks_and_cannot_heed_signals(tmp_path):
    with pytest.raises(RunInterrupted, match="ended by a watchdog"):
        with retape.interruptible() as limit:
            asks = threading.Thread(target=limit.request, args=("a watchdog",))

            def how():
                asks.start()
                asks.join()

            run_for(tmp_path, 10, how)
    errors = []

    def in_thread():
        for signals in (["SIGTERM"], []):
            try:
                with retape.interruptible(time_limit=0, signals=signals):
                    run_for(tmp_path)
            except retape.RetapeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert "`signals=['SIGTERM']`: only the main thread can heed" in errors[0]
    assert "the time limit of 0 s" in errors[1]


@pytest.mark.parametrize("signals", ["SIGKILL", [signal.SIGSTOP], ["SIGTERM", 9]])
def test_a_signal_that_no_process_can_heed_is_refused(signals):
    with pytest.raises(PlanError, match="ends or stops a process unasked"):
        retape.interruptible(signals=signals)


def test_what_a_step_runs_is_not_ended(tmp_path):
    """A run within a run heeds nothing, and needs no store."""

    def step(x, k):
        run(ToyMachine(5), retape.fixed_space(snapshots=2))
        return x

    with retape.interruptible(time_limit=1e9):
        result = run_program(
            step,
            lambda x, k, g: g,
            1.0,
            seed=lambda x: x,
            steps=3,
            store=DiskStore(tmp_path),
        )
    assert result.cotangent == 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time_limit": "soon"}, "`time_limit='soon'` is not valid: pass a num"),
        ({"time_limit": -1}, "`time_limit=-1` is not valid"),
        ({"signals": ["SIGNAL"]}, "this system has no signal 'SIGNAL'"),
        ({}, r"MemoryStore\(.* does not go with `retape.in"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, options, said):
    with pytest.raises(PlanError, match=said), retape.interruptible(**options):
        run_for(tmp_path, kind="memory")


def test_a_limit_is_for_one_block():
    with pytest.raises(PlanError, match="is in use. Make one for each block"):
        with retape.interruptible() as limit, limit:
            pass
