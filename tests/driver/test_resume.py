"""A run that ends early is taken up again, and its result has the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import retape
from retape import DiskStore, MachineError, MemoryStore, StoreError, Tier, TieredStore
from retape.driver import ToyMachine, run
from retape.schedule import Hierarchy, Schedule
from tests.driver.power import Power, PowerLost

ToyCapsule = type(ToyMachine(1).start())
LENGTH = 150

FINISHED = ["lock", "record-before.npz", "record.npz"]
"""The files of a run that is done."""


class Crash(Exception):
    """Stands for the end of a process."""


class Fragile(ToyMachine):
    """A toy that crashes after a number of calls."""

    calls = 0

    def _tick(self):
        Fragile.calls -= 1
        if Fragile.calls < 0:
            raise Crash

    def advance(self, capsule, steps):
        self._tick()
        return super().advance(capsule, steps)

    def reverse(self, capsule, steps, cotangent):
        self._tick()
        return super().reverse(capsule, steps, cotangent)

    def tape(self, capsule, steps):
        self._tick()
        return super().tape(capsule, steps)


def disk_at(path, every=0.0):
    return DiskStore(
        path,
        every=every,
        pack=lambda capsule: (capsule.step, capsule.value),
        unpack=lambda tree: ToyCapsule(*tree),
    )


def until_done(path, machine, plan, calls, tiered=False, between=lambda: None):
    """Run, crash, run again ... and how often it crashed."""
    for crashes in range(400):
        Fragile.calls = calls()
        store = disk_at(path)
        if tiered:
            store = TieredStore(MemoryStore(capacity=1), store)
        try:
            return run(machine(), plan, store=store), crashes
        except Crash:
            between()
    raise AssertionError("no progress between crashes")


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    # What is tested here survives in the page cache; flushing it is only slow.
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("tiered", [True, False])
def test_a_run_that_crashes_often_gives_the_same_result(
    tmp_path, seeded, known, tiered
):
    for trial in range(8):
        n, snapshots, stage = seeded.choice([(60, 4, 1), (41, 3, 3), (23, 1, 2)])
        plan = retape.fixed_space(snapshots=snapshots, stage=stage)
        outcome, crashes = until_done(
            tmp_path / str(trial),
            lambda n=n: Fragile(n, tells_length=known),
            plan,
            lambda: seeded.randint(4, 30),
            tiered,
        )
        assert outcome.result == ToyMachine(n).reverse(ToyCapsule(0, 3), n, None)
        assert outcome.report.resumed == (crashes > 0)
        files = sorted(os.listdir(tmp_path / str(trial)))
        assert files == FINISHED


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
        disk = disk_at(tmp_path, seeded.choice([0.0, 1e9]))
        store = disk if known else TieredStore(MemoryStore(capacity=1), disk)
        machine = ToyMachine(18, tells_length=known)
        try:
            assert run(machine, plan, store=store).result == expected
        except PowerLost:
            power.off()
            return True
        return False

    power = Power(tmp_path, seeded, monkeypatch)
    expected = ToyMachine(18).reverse(ToyCapsule(0, 3), 18, None)
    moment = 1
    while lost(moment):
        lost(moment)  # The run that is taken up again may lose it, too.
        assert not lost(0)
        disk_at(tmp_path).clear()
        moment += 5 if kind == "tapes" else 2
    assert moment > 40


# Which files the power takes depends on their order in the directory: where a snapshot
# is left, the run goes on from it, and says that there is no record.
@pytest.mark.filterwarnings("ignore:.*no record of its run:retape.RetapeWarning")
def test_that_model_sees_a_store_that_does_not_flush(tmp_path, monkeypatch, seeded):
    power = Power(tmp_path, seeded, monkeypatch, flushing=False)
    plan, damaged = retape.fixed_space(snapshots=3, stage=2), 0
    for moment in range(10, 60, 3):
        power.on(moment)
        with pytest.raises(PowerLost):
            run(ToyMachine(18), plan, store=disk_at(tmp_path))
        power.off()
        try:
            run(ToyMachine(18), plan, store=disk_at(tmp_path))
        except StoreError as error:
            assert "npz` is not a snapshot" in str(error)
            damaged += 1
        for file in tmp_path.glob("*.npz"):
            file.unlink()
    assert damaged > 3


@pytest.mark.parametrize("tiered", [True, False])
def test_a_run_that_keeps_tapes_crashes_often_too(tmp_path, seeded, tiered):
    plan = retape.fixed_space(snapshots=5, store={"state", "tape"})
    for trial in range(8):
        path = tmp_path / str(trial)

        def damage(path=path):
            files = [*path.glob("tape-*.npz"), *path.glob("step-*.npz")]
            for file in files:
                if seeded.random() < 0.2:
                    file.write_bytes(b"")

        outcome, crashes = until_done(
            path,
            lambda: Fragile(50),
            plan,
            lambda: seeded.randint(6, 30),
            tiered,
            damage,
        )
        assert outcome.result == ToyMachine(50).reverse(ToyCapsule(0, 3), 50, None)
        assert crashes > 0 and sorted(os.listdir(path)) == FINISHED


def test_a_tape_damaged_during_the_run_is_made_again(tmp_path):
    class Vandal(ToyMachine):
        def reverse(self, capsule, steps, cotangent):
            for file in tmp_path.glob("tape-*.npz"):
                file.write_bytes(b"")
            return super().reverse(capsule, steps, cotangent)

    plan = retape.fixed_space(snapshots=4, store={"state", "tape"})
    outcome = run(Vandal(30), plan, store=disk_at(tmp_path))
    assert outcome.result == ToyMachine(30).reverse(ToyCapsule(0, 3), 30, None)
    assert outcome.report.repaired > 3


def test_a_finished_run_is_run_again_unless_its_result_is_asked_for(tmp_path):
    plan = retape.fixed_space(snapshots=2)
    first = run(ToyMachine(30), plan, store=disk_at(tmp_path))
    machine = ToyMachine(30)
    again = run(machine, plan, store=disk_at(tmp_path), reuse=True)
    assert again.result == first.result
    assert (machine.advanced, machine.taped) == (0, 0)
    assert run(machine, plan, store=disk_at(tmp_path)).result == first.result
    assert machine.taped == 30
    # What was begun anew leaves nothing of the run before.
    assert sorted(os.listdir(tmp_path)) == FINISHED


def test_damaged_snapshots_are_recomputed_from_earlier_ones(tmp_path, seeded):
    def damage():
        for file in tmp_path.glob("step-*.npz"):
            if seeded.random() < 0.5:
                file.write_bytes(file.read_bytes()[: seeded.randint(0, 200)])

    plan = retape.fixed_space(snapshots=5, stage=2)
    outcome, crashes = until_done(
        tmp_path,
        lambda: Fragile(60),
        plan,
        lambda: seeded.randint(6, 20),
        False,
        damage,
    )
    assert outcome.result == ToyMachine(60).reverse(ToyCapsule(0, 3), 60, None)
    assert crashes > 1


def test_a_snapshot_damaged_during_the_run_is_repaired_and_counted(tmp_path):
    class Vandal(ToyMachine):
        def reverse(self, capsule, steps, cotangent):
            if cotangent is None:
                for file in tmp_path.glob("step-*.npz"):
                    file.write_bytes(b"")
            return super().reverse(capsule, steps, cotangent)

    outcome = run(Vandal(30), retape.fixed_space(snapshots=3), store=disk_at(tmp_path))
    assert outcome.result == ToyMachine(30).reverse(ToyCapsule(0, 3), 30, None)
    assert outcome.report.repaired == 3


def test_what_was_in_memory_is_rebuilt_in_one_pass(tmp_path):
    class Killed(ToyMachine):
        def reverse(self, capsule, steps, cotangent):
            if capsule.step < 250:
                raise Crash
            return super().reverse(capsule, steps, cotangent)

    def tiered():
        return TieredStore(MemoryStore(capacity=200), disk_at(tmp_path))

    plan = retape.fixed_space(snapshots=300)
    with pytest.raises(Crash):
        run(Killed(301), plan, store=tiered(), label="it")
    machine = ToyMachine(301)
    outcome = run(machine, plan, store=tiered(), label="it")
    assert outcome.result == ToyMachine(301).reverse(ToyCapsule(0, 3), 301, None)
    # From the disk down to step 200, then the 199 lost ones in one pass.
    assert outcome.report.repaired == 200 and machine.advanced == 199


def test_another_plan_or_machine_is_refused(tmp_path):
    Fragile.calls = 12
    with pytest.raises(Crash):
        run(Fragile(40), retape.fixed_space(snapshots=2), store=disk_at(tmp_path))
    Fragile.calls = 1000
    with pytest.raises(StoreError, match="another run, `Fragile under retape.fix"):
        run(Fragile(40), retape.fixed_space(snapshots=3), store=disk_at(tmp_path))
    with pytest.raises(StoreError, match="and this one is `mine under"):
        plan = retape.fixed_space(snapshots=2)
        run(Fragile(40), plan, store=disk_at(tmp_path), label="mine")


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
    Fragile.calls = 50
    with pytest.raises(Crash):
        run(Fragile(60), make(), store=disk_at(tmp_path))
    Fragile.calls = 10_000
    outcome = run(Fragile(60), make(), store=disk_at(tmp_path))
    assert outcome.result == ToyMachine(60).reverse(ToyCapsule(0, 3), 60, None)
    assert outcome.report.resumed and outcome.report.taped < 60


def test_a_machine_that_changed_its_length_is_refused(tmp_path):
    plan = retape.fixed_space(snapshots=2)
    Fragile.calls = 25
    with pytest.raises(Crash):
        run(Fragile(40), plan, store=disk_at(tmp_path))
    Fragile.calls = 1000
    with pytest.raises(MachineError, match="no stage of this plan ends there"):
        run(Fragile(12), plan, store=disk_at(tmp_path))


def test_ctrl_c_is_recorded_and_taken_up_again(tmp_path):
    class Interrupted(ToyMachine):
        def advance(self, capsule, steps):
            if self.taped == 20:
                raise KeyboardInterrupt
            return super().advance(capsule, steps)

    plan = retape.fixed_space(snapshots=3)
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(40), plan, store=disk_at(tmp_path, 1e9), label="it")
    machine = ToyMachine(40)
    outcome = run(machine, plan, store=disk_at(tmp_path), label="it")
    assert outcome.result == machine.reverse(machine.start(), 40, None)
    assert outcome.report.resumed and outcome.report.taped == 20


@pytest.mark.parametrize("interrupted", range(1, 30, 4))
def test_ctrl_c_while_a_cotangent_is_changed_in_place(tmp_path, interrupted):
    """What is recorded is the last whole stage, and not one that is half done."""
    calls = 0

    def reverse_step(x, k, g):
        nonlocal calls
        calls += 1
        g *= 3
        if calls == interrupted:
            raise KeyboardInterrupt
        g += k
        return g

    def call():
        return retape.adjoint(
            retape.Program(lambda x, k: x + 1.0, reverse_step),
            np.zeros(2),
            seed=np.ones_like,
            steps=30,
            plan=retape.fixed_space(snapshots=3, stage=4),
            store=DiskStore(tmp_path),
            key="in place",
        ).cotangent

    with pytest.raises(KeyboardInterrupt):
        call()
    g = 1
    for k in range(29, -1, -1):
        g = 3 * g + k
    assert call().tolist() == [g, g]


def test_a_progress_that_resumes_goes_on_where_it_was(tmp_path):
    plan = retape.fixed_space(snapshots=3)
    Fragile.calls = 40
    with pytest.raises(Crash):
        run(Fragile(40), plan, store=disk_at(tmp_path))
    Fragile.calls = 1000
    seen = []
    run(Fragile(40), plan, store=disk_at(tmp_path), progress=seen.append)
    assert seen[0].done > 40
    assert seen[-1].done == seen[-1].total == plan.predict(40).advances + 40


def test_what_is_made_again_is_work_to_be_foreseen(tmp_path):
    """Where snapshots were lost, the total grows, and the bar still ends at its end."""

    class Killed(Fragile):
        def reverse(self, capsule, steps, cotangent):
            if capsule.step == 15:
                raise Crash
            return super().reverse(capsule, steps, cotangent)

    def tiered():
        return TieredStore(MemoryStore(capacity=15), disk_at(tmp_path))

    plan, seen = retape.fixed_space(snapshots=30), []
    Fragile.calls = 1000
    with pytest.raises(Crash):
        run(Killed(30), plan, store=tiered(), label="it")
    run(Fragile(30), plan, store=tiered(), label="it", progress=seen.append)
    assert seen[0].total == 59 and seen[-1].total == 59 + 14
    assert seen[-1].done == seen[-1].total
    assert all(one.done <= one.total for one in seen)


def test_the_work_left_of_a_run_whose_length_is_known_by_now(tmp_path):
    plan, seen = retape.fixed_space(snapshots=3, stage=2), []
    Fragile.calls = 45
    with pytest.raises(Crash):
        run(Fragile(40, tells_length=False), plan, store=disk_at(tmp_path))
    Fragile.calls = 1000
    machine = Fragile(40, tells_length=False)
    run(machine, plan, store=disk_at(tmp_path), progress=seen.append)
    assert seen[0].length == 40 and seen[0].done > 40
    assert seen[-1].done == seen[-1].total


def test_the_report_of_a_run_that_was_done_says_so(tmp_path):
    plan = retape.fixed_space(snapshots=2)
    run(ToyMachine(30), plan, store=disk_at(tmp_path))
    again = run(ToyMachine(30), plan, store=disk_at(tmp_path), reuse=True).report
    assert str(again).startswith("30 steps: an earlier process had done it all, and")
    assert (again.reverses, again.taped, again.resumed) == (0, 0, True)


@pytest.mark.slow
@pytest.mark.parametrize("known", ["known", "unknown", "background"])
def test_kill_9_at_random_points(tmp_path, seeded, known):
    script = Path(__file__).with_name("killed.py")
    calm, path = tmp_path / "calm", tmp_path / "run"
    command = [sys.executable, os.fspath(script)]
    subprocess.run([*command, os.fspath(calm), known, str(LENGTH)], check=True)
    # Processes start slowly and work quickly: only the time after the start is cut.
    worked = time.time() - Path(f"{calm}.ready").stat().st_mtime
    ready, kills = Path(f"{path}.ready"), 0
    for _ in range(8):
        ready.unlink(missing_ok=True)
        process = subprocess.Popen([*command, os.fspath(path), known, str(LENGTH)])
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
        subprocess.run([*command, os.fspath(path), known, str(LENGTH)], check=True)
    assert kills >= 1
    one = np.load(os.fspath(calm) + ".result.npz")
    other = np.load(os.fspath(path) + ".result.npz")
    assert one["state"].tobytes() == other["state"].tobytes()
    assert one["cotangent"].tobytes() == other["cotangent"].tobytes()
    assert other["resumed"]


@pytest.mark.parametrize("calls", range(35, 120, 12))
def test_a_lost_snapshot_is_made_again_beside_the_programs_buffer(
    calls: int, tmp_path: Path
) -> None:
    """Those in memory are gone with the first run, and the program has one array."""
    left, buffer = [10**6], np.empty(3)

    def step(x: Any, k: int) -> Any:
        left[0] -= 1
        if not left[0]:
            raise Stopped
        np.multiply(3.9 * x, 1.0 - x, out=buffer)
        return buffer

    x0 = np.array([0.11, 0.12, 0.13])
    expected, states = np.ones(3), [x0]
    for _ in range(90):
        states.append(3.9 * states[-1] * (1.0 - states[-1]))
    for x in states[-2::-1]:
        expected = 3.9 * (1.0 - 2.0 * x) * expected

    def attempt() -> Any:
        program = retape.Program(
            step,
            lambda x, k, g: 3.9 * (1.0 - 2.0 * x) * g,
            done=lambda x: np.array_equal(x, states[-1]),
        )
        store = TieredStore(MemoryStore(capacity=2), DiskStore(tmp_path, every=0))
        plan = retape.tiers(memory=2, disk=4)
        return retape.adjoint(
            program, x0, seed=np.ones_like, plan=plan, store=store, key="a", reuse=True
        )

    left[0] = calls
    with pytest.raises(Stopped):
        attempt()
    left[0] = 10**6
    found = attempt()
    assert found.report.resumed
    assert np.array_equal(found.cotangent, expected)


class Stopped(Exception):
    """The end of a process, here."""
