"""A run that ends early is taken up again, and its result has the same bits."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import retape
from retape import MachineError, MemoryStore, StoreError, Tier, TieredStore
from retape.driver import ToyMachine, run
from retape.schedule import Hierarchy, Schedule
from tests.driver.power import Power, PowerLost
from tests.driver.toys import (
    Crash,
    Watched,
    by_itself,
    ends_after,
    ends_at,
    toys_at,
)  # fmt: skip
from tests.judges.core.programs import N, formula, in_place, pure, slope
from tests.judges.core.test_plans import call, check

ROOT = Path(__file__).parents[2]


PLANS = {
    "known": (retape.fixed_space(snapshots=3, stage=2), True),
    "unknown": (retape.fixed_space(snapshots=3, stage=2), False),
    "tapes": (retape.fixed_space(snapshots=4, store={"state", "tape"}), True),
    "tiers": (retape.tiers(memory=1, disk=2, stage=2), True),
}


@pytest.mark.slow("tapes", "unknown", "known")
@pytest.mark.parametrize("kind", PLANS)
def test_power_lost_before_and_after_any_call_to_the_disk(
    tmp_path, monkeypatch, seeded, kind
):
    """Every write, flush, rename and removal; what was not flushed may be lost."""
    plan, known = PLANS[kind]

    def lost(moment):
        power.on(moment)
        disk = toys_at(tmp_path, seeded.choice([0.0, 1e9]))
        store = disk if known else TieredStore(MemoryStore(capacity=1), disk)
        machine = ToyMachine(18, tells_length=known)
        try:
            assert run(machine, plan, store=store).result == expected
        except PowerLost:
            power.off()
            return True
        return False

    power = Power(tmp_path, seeded, monkeypatch)
    expected = by_itself(18)
    moment = 1
    while lost(moment):
        lost(moment)  # The run that is taken up again may lose it, too.
        assert not lost(0)
        toys_at(tmp_path).clear()
        moment += 5 if kind == "tapes" else 2
    assert moment > 40


def test_that_model_sees_a_store_that_does_not_flush(tmp_path, monkeypatch, seeded):
    power = Power(tmp_path, seeded, monkeypatch, flushing=False)
    plan, damaged = retape.fixed_space(snapshots=3, stage=2), 0
    for moment in range(10, 60, 3):
        power.on(moment)
        with pytest.raises(PowerLost):
            run(ToyMachine(18), plan, store=toys_at(tmp_path))
        power.off()
        try:
            run(ToyMachine(18), plan, store=toys_at(tmp_path))
        except StoreError as error:
            assert "npz` is not a snapshot" in str(error)
            damaged += 1
        for file in tmp_path.glob("*.npz"):
            file.unlink()
    assert damaged > 3


@pytest.mark.parametrize(
    ("what", "snapshots", "repaired"), [("tape", 4, 19), ("state", 3, 3)]
)
def test_what_is_damaged_during_the_run_is_made_again_and_counted(
    tmp_path, what, snapshots, repaired
):
    pattern = {"tape": "tape-*.npz", "state": "step-*.npz"}[what]

    def damage(called, capsule, steps):
        if called == "reverse" and (capsule.step == 29 or what == "tape"):
            for file in tmp_path.glob(pattern):
                file.write_bytes(b"")

    plan = retape.fixed_space(snapshots=snapshots, store={"state", what})
    outcome = run(Watched(30, damage), plan, store=toys_at(tmp_path))
    assert outcome.result == by_itself(30)
    assert outcome.report.repaired == repaired


def test_what_was_in_memory_is_rebuilt_in_one_pass_which_is_foreseen(tmp_path):
    """Where snapshots were lost, the total grows, and the bar still ends at its end."""

    def tiered():
        return TieredStore(MemoryStore(capacity=15), toys_at(tmp_path))

    plan, seen, machine = retape.fixed_space(snapshots=30), [], ToyMachine(30)
    with pytest.raises(Crash):
        run(Watched(30, ends_at("reverse", 15)), plan, store=tiered(), label="it")
    outcome = run(machine, plan, store=tiered(), label="it", progress=seen.append)
    assert outcome.result == by_itself(30)
    # From the disk down to step 15, then the 14 steps to those that were lost.
    assert outcome.report.repaired == 15 and machine.advanced == 14
    assert seen[0].total == 59 and seen[-1].total == 59 + 14
    assert seen[-1].done == seen[-1].total
    assert all(one.done <= one.total for one in seen)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hierarchy(60, [Tier("memory", 2), Tier("disk", 3, 1, 5)]),
        lambda: list(Schedule(60, 4)),
        lambda: iter(Schedule(60, 4)),
        lambda: Schedule(60, 5, split="bisection"),
    ],
    ids=["tiers", "list", "iterator", "schedule"],
)
def test_schedules_given_directly_are_taken_up_again(tmp_path, make):
    with pytest.raises(Crash):
        run(Watched(60, ends_after(50)), make(), store=toys_at(tmp_path), label="it")
    outcome = run(ToyMachine(60), make(), store=toys_at(tmp_path), label="it")
    assert outcome.result == by_itself(60)
    assert outcome.report.resumed and outcome.report.taped < 60


def test_a_machine_that_changed_its_length_is_refused(tmp_path):
    plan = retape.fixed_space(snapshots=2)
    with pytest.raises(Crash):
        run(Watched(40, ends_after(25)), plan, store=toys_at(tmp_path), label="it")
    with pytest.raises(MachineError, match="no stage of this plan ends there"):
        run(ToyMachine(12), plan, store=toys_at(tmp_path), label="it")


def test_ctrl_c_is_recorded_and_taken_up_again(tmp_path):
    def interrupt(called, *given):
        if called == "advance" and toy.taped == 20:
            raise KeyboardInterrupt

    plan, toy = retape.fixed_space(snapshots=3), Watched(40, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(toy, plan, store=toys_at(tmp_path, 1e9), label="it")
    machine = ToyMachine(40)
    outcome = run(machine, plan, store=toys_at(tmp_path), label="it")
    assert outcome.result == by_itself(40)
    assert outcome.report.resumed and outcome.report.taped == 20


@pytest.mark.parametrize("interrupted", [1, 5, 13, 22])
def test_ctrl_c_while_a_cotangent_is_changed_in_place(tmp_path, interrupted):
    """What is recorded is the last whole stage, and not one that is half done."""
    program, calls = in_place(), 0

    def half_done(x, k, g):
        nonlocal calls
        calls += 1
        g *= slope(x)
        if calls == interrupted:
            raise KeyboardInterrupt
        return g

    program.reverse_step = half_done
    plan = retape.fixed_space(snapshots=3, stage=4)
    with pytest.raises(KeyboardInterrupt):
        call(program, plan, "disk", tmp_path)
    check(program, call(program, plan, "disk", tmp_path))


@pytest.mark.parametrize("known", [True, False])
def test_a_progress_that_resumes_goes_on_where_it_was(tmp_path, known):
    """Also of a run whose length is known by now."""
    plan, seen = retape.fixed_space(snapshots=3, stage=2), []
    with pytest.raises(Crash):
        machine = Watched(40, ends_after(45), tells_length=known)
        run(machine, plan, store=toys_at(tmp_path), label="it")
    machine = ToyMachine(40, tells_length=known)
    run(machine, plan, store=toys_at(tmp_path), label="it", progress=seen.append)
    assert seen[0].done > 40 and seen[0].length == 40
    assert seen[-1].done == seen[-1].total
    assert not known or seen[-1].total == plan.predict(40).advances + 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "known"), [("near", "known"), ("near", ""), ("tiered", "known")]
)
def test_kill_9_at_random_points(tmp_path, seeded, kind, known):
    calm, path = tmp_path / "calm", tmp_path / "run"

    def command(place):
        pace = ["stages", "pure", kind, "0", known, "150", "0.0004"]
        return [sys.executable, "-m", "tests.judges.core.killed", place, *pace]

    subprocess.run(command(calm), check=True, cwd=ROOT)
    # Processes start slowly and work quickly: only the time after the start is cut.
    ready, ended = (Path(f"{calm}.{name}") for name in ("ready", "result.npz"))
    worked = ended.stat().st_mtime - ready.stat().st_mtime
    ready, kills = Path(f"{path}.ready"), 0
    for _ in range(8):
        ready.unlink(missing_ok=True)
        process = subprocess.Popen(command(path), cwd=ROOT)
        while not ready.exists() and process.poll() is None:
            time.sleep(0.002)
        try:
            process.wait(timeout=worked * seeded.uniform(0.1, 0.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            break
    else:
        subprocess.run(command(path), check=True, cwd=ROOT)
    assert kills >= 1
    one, other = (np.load(f"{place}.result.npz") for place in (calm, path))
    assert one["state"].tobytes() == other["state"].tobytes()
    assert one["cotangent"].tobytes() == other["cotangent"].tobytes()
    assert other["resumed"]


@pytest.mark.parametrize("calls", range(35, 120, 12))
def test_a_lost_snapshot_is_made_again_beside_the_programs_buffer(calls, tmp_path):
    """Those in memory are gone with the first run, and the program has one array."""
    left, buffer = calls, np.empty(N)

    def step(x, k):
        nonlocal left
        left -= 1
        if not left:
            raise Crash
        buffer[:] = formula(x, k)
        return buffer

    def attempt():
        program, plan = pure(), retape.tiers(memory=2, disk=4)
        program.step = step
        options = {"known": False, "steps": 90}
        return program, call(program, plan, "near", tmp_path, **options)

    with pytest.raises(Crash):
        attempt()
    program, found = attempt()
    assert found.report.resumed
    check(program, found, 90)
