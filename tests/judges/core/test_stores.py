"""Stores: every stack of up to two wrappers, times what a store promises.

A wrapper that forgets to hand on one question of the store inside it gives a run that
is slow, refused or wrong, in that stack only. So each law is asked of each stack.
"""

import time
from itertools import count, product
from pathlib import Path

import fsspec
import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, StoreError, TieredStore
from retape.storage import (
    AsyncStore,
    CodecStore,
    RankStore,
    RemoteStore,
    SnapshotStore,
    StoreWrapper,
    measure,
)
from retape.testing import check_store

STEPS = 40
PLAN = retape.fixed_space(snapshots=4, stage=3)


class Alone:
    """The communicator of one process."""

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 1

    def allgather(self, sendobj):
        return [sendobj]


BASES = {
    "memory": lambda path: MemoryStore(),
    "disk": lambda path: DiskStore(path, every=0),
    "remote": lambda path: RemoteStore(f"memory://{path}", every=0),
}
WRAPPERS = {
    "tiered": lambda store: TieredStore(MemoryStore(capacity=1), store),
    "async": AsyncStore,
    "codec": CodecStore,
    "rank": lambda store: RankStore(store, Alone()),
}
NAMES = [
    (base, *wrappers)
    for base in BASES
    for many in range(3)
    for wrappers in product(WRAPPERS, repeat=many)
]
REFUSED = {
    # What does not outlive its process has nothing to wait for, and no record.
    *[n for n in NAMES if n[0] == "memory" and set(n[1:]) - {"codec"}],
    # Ranks agree on a record, which only the outermost store could write for all.
    *[n for n in NAMES if "rank" in n[1:2] and n[2:] not in {(), ("codec",)}],
    *[n for n in NAMES if n[1:] in {("tiered", "rank"), ("async", "async")}],
}
STACKS = [n for n in NAMES if n not in REFUSED]
# Whole runs, of two wrappers on the one or the other base: the base sees none of both.
PAIRS = {n[1:]: i % 2 for i, n in enumerate(STACKS) if n[0] == "disk"}
RUNS = [n for n in STACKS if len(n) < 3 or n[0] != ("disk", "remote")[PAIRS[n[1:]]]]


@pytest.fixture(autouse=True)
def _nothing_remote():
    yield
    fsspec.filesystem("memory").store.clear()


def stack(name, path, base=None):
    """A store of the outermost wrapper that is named last."""
    store = (base or BASES[name[0]])(path)
    for wrapper in name[1:]:
        store = WRAPPERS[wrapper](store)
    return store


def cells(names):
    """One parameter a stack."""
    return [pytest.param(name, id="-".join(name)) for name in names]


def gradient(store, stop=None, steps=STEPS):
    """The result of a run, which is interrupted at a step of its way back."""

    def reverse_step(x, k, g):
        if k == stop:
            raise KeyboardInterrupt
        return 3.9 * (1.0 - 2.0 * x) * g

    return retape.adjoint(
        retape.Program(
            lambda x, k: 3.9 * x * (1.0 - x) + 1e-3 * np.sin(k), reverse_step
        ),
        np.linspace(0.11, 0.12, 20),
        seed=np.ones_like,
        steps=steps,
        plan=PLAN,
        store=store,
        key="a judge",
    )


def plain_gradient():
    """The same with no library at all: every state is kept."""
    states = [np.linspace(0.11, 0.12, 20)]
    for k in range(STEPS):
        states.append(3.9 * states[-1] * (1.0 - states[-1]) + 1e-3 * np.sin(k))
    g = np.ones(20)
    for x in reversed(states[:-1]):
        g = 3.9 * (1.0 - 2.0 * x) * g
    return g.tobytes()


def is_durable(name):
    return name[0] != "memory"


@pytest.mark.parametrize("name", cells(sorted(REFUSED)))
def test_a_stack_that_cannot_work_is_refused_when_it_is_made(name, tmp_path):
    with pytest.raises(StoreError, match="Pass (a|another|it) "):
        stack(name, tmp_path)


@pytest.mark.parametrize("name", cells(STACKS))
def test_the_laws_of_stores(name, tmp_path):
    laws = check_store(lambda: stack(name, tmp_path))
    assert len(laws) == (10 if is_durable(name) else 5)


@pytest.mark.parametrize("name", cells(STACKS))
def test_the_bits_and_the_work_are_those_of_a_run_in_memory(name, tmp_path):
    found = gradient(stack(name, tmp_path))
    assert found.cotangent.tobytes() == plain_gradient()
    predicted = PLAN.predict(STEPS)
    for what in ("advances", "stores", "restores", "peak_snapshots"):
        assert getattr(found.report, what) == getattr(predicted, what), what


@pytest.mark.parametrize("name", cells(RUNS))
def test_the_same_store_serves_again_after_a_run_that_ended_early(name, tmp_path):
    store = stack(name, tmp_path)
    for stop in (STEPS - 1, 13):
        with pytest.raises(KeyboardInterrupt):
            gradient(store, stop)
    assert gradient(store).cotangent.tobytes() == plain_gradient()


@pytest.mark.parametrize("name", cells([n for n in RUNS if is_durable(n)]))
def test_the_next_process_goes_on_with_the_same_bits(name, tmp_path):
    for stop in (30, 13):
        with pytest.raises(KeyboardInterrupt):
            gradient(stack(name, tmp_path), stop)
    found = gradient(stack(name, tmp_path))
    assert found.cotangent.tobytes() == plain_gradient()
    assert found.report.resumed and found.report.taped < STEPS


@pytest.mark.parametrize("name", cells([n for n in RUNS if is_durable(n)]))
def test_another_run_is_refused_and_what_is_cleared_is_gone(name, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        gradient(stack(name, tmp_path), 13)
    with pytest.raises(StoreError, match="another run"):
        gradient(stack(name, tmp_path), steps=STEPS + 1)
    store = stack(name, tmp_path)
    store.clear()
    assert not gradient(store).report.resumed


NEAR = {
    "memory": MemoryStore,
    "codec": lambda: CodecStore(MemoryStore()),
}


@pytest.mark.parametrize("near", cells([(n,) for n in NEAR]))
def test_the_near_part_is_empty_when_a_run_begins(near, tmp_path):
    store = TieredStore(NEAR[near[0]](), DiskStore(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        gradient(store, 13)
    assert gradient(store).cotangent.tobytes() == plain_gradient()


def steps_of_two_processes(make):
    """Steps that a second process runs after the first was asked to stop at 150."""
    ran, limit = [], None

    def step(x, k):
        ran.append(k)
        if limit is not None and k == 150:
            limit.request("a test")
        return x + 0.01 * np.sin(x)

    def call():
        return retape.adjoint(
            retape.Program(step, lambda x, k, g: g + 0.01 * np.cos(x) * g),
            np.ones(3),
            seed=np.ones_like,
            steps=200,
            plan=retape.tiers(memory=30, disk=0, stage=1),
            store=make(),
            key="a judge",
        )

    with pytest.raises(retape.RunInterrupted):
        with retape.interruptible() as limit:
            call()
    limit = None
    ran.clear()
    call()
    return len(ran)


WAYS = [(), ("async",), ("codec",), ("async", "codec"), ("codec", "async")]


@pytest.mark.parametrize("name", cells([("tiered", *w) for w in WAYS]))
def test_what_is_in_memory_is_written_when_a_run_is_asked_to_stop(name, tmp_path):
    def tiers(path):
        return TieredStore(MemoryStore(capacity=30), DiskStore(path))

    found = steps_of_two_processes(lambda: stack(name, tmp_path / "run", tiers))
    places = map(str, count())  # Another directory each time: nothing is found.
    anew = steps_of_two_processes(lambda: tiers(tmp_path / next(places)))
    # Less a few that show that it is the same program.
    assert anew - found >= 142


@pytest.mark.parametrize(
    "name",
    cells([("disk", *wrappers) for wrappers in WAYS]),
)
def test_a_measured_write_is_one_that_has_ended(name, tmp_path):
    class Slow(DiskStore):
        def put(self, place, capsule, nbytes):
            time.sleep(0.03)
            super().put(place, capsule, nbytes)

    assert measure(stack(name, tmp_path, Slow), nbytes="10 kB").write >= 0.02


def test_a_wrapper_answers_every_question_that_a_store_is_asked():
    """A question that a wrapper does not hand on is answered for the wrong store."""
    asked = {name for name in vars(SnapshotStore) if not name.startswith("_")}
    assert asked - set(vars(StoreWrapper)) == set()
    # As of a store without parts: one process, and no record before the last.
    left = {"largest", "keeps_records", "rewind", "forget_records"}
    assert asked - set(vars(TieredStore)) == left


def test_what_is_no_store_is_refused_by_everything_that_takes_one(tmp_path):
    class Duck:
        put = get = drop = peak_snapshots = peak_bytes = None

    for make in (
        lambda: gradient(Duck()),
        lambda: AsyncStore(Duck()),
        lambda: CodecStore(Duck()),
        lambda: RankStore(Duck(), Alone()),
        lambda: TieredStore(MemoryStore(), Duck()),
        lambda: TieredStore(Duck(), DiskStore(tmp_path)),
        lambda: measure(Duck()),
        lambda: check_store(Duck()),
    ):
        with pytest.raises(StoreError, match="store"):
            make()


PROGRAM = retape.Program(lambda x, k: 1.01 * x, lambda x, k, g: 1.01 * g)
RUNS_IN = {
    "adjoint": lambda **how: retape.adjoint(PROGRAM, 1.5, **how),
    "measure": lambda **how: retape.measure(PROGRAM, 1.5, **how),
    "diagnose": lambda **how: retape.diagnose(PROGRAM, 1.5, **how),
}


@pytest.mark.parametrize("call", RUNS_IN)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_is_a_store_on_disk(call, kind, tmp_path):
    how = {"seed": lambda x: 1.0, "steps": STEPS, "plan": PLAN}
    expected = RUNS_IN[call](**how)
    found = RUNS_IN[call](**how, store=kind(tmp_path / "run"))
    assert found.cotangent == expected.cotangent
    assert (tmp_path / "run" / "record.npz").exists()


@pytest.mark.parametrize("place", ["memory", "host", "cpu", "disk"])
def test_a_word_for_a_place_is_the_name_of_no_folder(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"retape\.MemoryStore\(\)"):
        RUNS_IN["adjoint"](seed=lambda x: 1.0, steps=STEPS, store=place)
    assert not any(tmp_path.iterdir())
