"""The host machine: the same gradients and counts as the sweep in one program."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape.driver import run as drive
from retape.storage import AsyncStore, CodecStore


def iterated(x: Any, n: Any) -> Any:
    """A `while` whose trip count is an argument."""
    body = lambda c: (c[0] + 1, jnp.sin(c[1]))  # noqa: E731
    return jnp.sum(jax.lax.while_loop(lambda c: c[0] < n, body, (0, x))[1])


class Noted:
    """A machine that notes what the driver asks of it."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.asked: list[tuple[str, Any, Any]] = []
        """What was called, with what, and what it gave back."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.machine, name)
        if name not in ("advance", "reverse", "to_store"):
            return found

        def call(*given: Any) -> Any:
            made = found(*given)
            self.asked.append((name, given, made))
            return made

        return call

    def calls(self, name: str) -> list[tuple[Any, Any]]:
        return [(given, made) for called, given, made in self.asked if called == name]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    """The machines that the host steers from now on."""
    seen: list[Noted] = []

    def run(machine: Any, plan: Any, **others: Any) -> Any:
        seen.append(Noted(machine))
        return drive(seen[-1], plan, **others)

    monkeypatch.setattr("retape.engines.jaxpr.api._hosted.run", run)
    return seen


X = jnp.arange(4.0) / 4
PLANS: dict[str, retape.Plan] = {
    "fixed space": retape.fixed_space(snapshots=3),
    "long stages": retape.fixed_space(snapshots=3, stage=7),
    "bisection": retape.fixed_space(snapshots=4, split="bisection"),
    "logarithmic": retape.logarithmic(),
    "within": retape.within("20 kB"),
}


@pytest.mark.slow("within", "bisection")
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_the_host_machine_gives_the_same_bits(
    plan: retape.Plan, tmp_path: Path
) -> None:
    seen: list[Any] = []
    for n in (0, 1, 41) if plan is PLANS["long stages"] else (41,):
        store = retape.DiskStore(tmp_path / "run")
        how: Any = {"store": store, "progress": seen.append}
        got = retape.jax.grad(iterated, plan=plan, **how)(X, n)
        want = retape.jax.grad(iterated, plan=plan)(X, n)
        np.testing.assert_array_equal(got, want)
        assert seen[-1].done == seen[-1].total
        store.clear()


def nested(x: Any, n: Any) -> Any:
    """A `while` in a loop, of as many turns as its place."""

    def turn(i: Any, v: Any) -> Any:
        body = lambda c: (c[0] + 1, jnp.sin(c[1]) + 0.1 * x)  # noqa: E731
        return jax.lax.while_loop(lambda c: c[0] < i % 4, body, (0, v))[1] * 1.01

    return jnp.sum(jax.lax.fori_loop(0, n, turn, x))


@pytest.mark.slow
@pytest.mark.parametrize("program", [iterated, nested])
def test_with_known_trip_counts_it_gives_the_same_gradient(
    program: Any, tmp_path: Path
) -> None:
    for plan in (PLANS["fixed space"], PLANS["long stages"]):
        for n in (0, 1, 41):
            store = retape.DiskStore(tmp_path / "run")
            how: Any = {"plan": plan, "loops": "device"}
            got = retape.jax.grad(program, store=store, **how)(X, n)
            want = retape.jax.grad(program, plan=plan)(X, n)
            np.testing.assert_allclose(got, want, rtol=1e-6)
            store.clear()


def layers(ws: Any, x: Any) -> Any:
    """Few values that change, and many parameters that every step reads."""
    step = lambda x, _: (jnp.tanh(ws @ x), None)  # noqa: E731
    return jnp.sum(jax.lax.scan(step, x, None, length=3000)[0])


@pytest.mark.slow
def test_cotangents_give_their_place(machines: list[Noted], tmp_path: Path) -> None:
    """The next ones are written over them: of each there is one at a time."""
    ws, x = jnp.eye(50) / 2, jnp.linspace(0.1, 1, 50)
    plan = retape.fixed_space(snapshots=3, stage=700)
    want = jax.grad(layers)(ws, x)
    for store in (retape.MemoryStore(), retape.DiskStore(tmp_path / "run")):
        got = retape.jax.grad(layers, plan=plan, store=store)(ws, x)
        np.testing.assert_allclose(got, want, rtol=1e-6)
        swept = [given[2] for given, _ in machines[-1].calls("reverse")]
        assert len(swept) == 5 and swept[0] is None
        for cotangent in swept[1:]:
            large = [v for v in jax.tree.leaves(cotangent) if v.nbytes >= ws.nbytes]
            assert large and all(v.is_deleted() for v in large)


def test_only_what_is_stored_or_recorded_crosses_to_the_host(
    machines: list[Noted], tmp_path: Path
) -> None:
    """A capsule that is advanced, or swept back from, stays where it is."""
    plan = retape.fixed_space(snapshots=3, stage=3)
    store = retape.DiskStore(tmp_path / "run")
    found = retape.jax.grad(iterated, plan=plan, store=store)(X, 41)
    want = retape.jax.grad(iterated, plan=plan)(X, 41)
    np.testing.assert_array_equal(found, want)
    crossed = [made for _, made in machines[0].calls("to_store")]
    assert crossed
    assert all(isinstance(v, np.ndarray) for v in jax.tree.leaves(crossed))
    # Restored ones come from the host; those that go on from an advance do not.
    taken = [type(capsule[1]) for (capsule, _), _ in machines[0].calls("advance")]
    assert np.ndarray in taken
    assert sum(t is not np.ndarray for t in taken) > 0.4 * len(taken)


def test_stores_that_pack_or_work_in_the_background_and_a_run_ended_early(
    tmp_path: Path,
) -> None:
    plan = PLANS["long stages"]
    want = retape.jax.grad(iterated, plan=plan)(X, 41)

    def gradient(store: Any) -> Any:
        return retape.jax.grad(iterated, plan=plan, store=store)(X, 41)

    disk = lambda: CodecStore(retape.DiskStore(tmp_path / "run"))  # noqa: E731
    with pytest.raises(retape.RunInterrupted, match="ended by a test"):
        with retape.interruptible() as limit:
            limit.request("a test")
            gradient(AsyncStore(disk()))
    for store in (CodecStore(retape.MemoryStore()), AsyncStore(disk())):
        np.testing.assert_array_equal(gradient(store), want)


def test_a_store_under_jit_is_refused() -> None:
    gradient = retape.jax.grad(iterated, store=retape.MemoryStore())
    with pytest.raises(retape.PlanError, match="need the host between the steps"):
        jax.jit(gradient)(X, 3)


KILLED = """
    import sys, jax, jax.numpy as jnp, numpy as np, retape, retape.jax
    jax.config.update("jax_enable_x64", True)
    def run(x):
        step = lambda x, k: (jnp.sin(x) + 0.01 * k, None)
        return jnp.sum(jax.lax.scan(step, x, jnp.arange(400_000.0))[0])
    store = retape.DiskStore(sys.argv[1])
    plan = retape.fixed_space(snapshots=6, stage=20_000)
    stages = int(sys.argv[2])
    def watch(progress):
        global stages
        stages -= 1
        if stages == 0:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
    g = retape.jax.grad(run, plan=plan, store=store, progress=watch)(jnp.arange(4.0))
    print(np.asarray(g).tobytes().hex())
"""


@pytest.mark.slow
def test_a_killed_run_is_taken_up_again_with_the_same_bits(tmp_path: Path) -> None:
    def start(folder: str, stages: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path / folder]
            + [str(stages)],
            capture_output=True,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            timeout=120,
            check=False,
        )

    want = start("whole", -1)
    assert want.returncode == 0, want.stderr
    for stages in (4, 9):
        assert start("killed", stages).returncode == -9
    got = start("killed", -1)
    assert got.returncode == 0, got.stderr
    assert got.stdout == want.stdout
