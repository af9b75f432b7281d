"""Public bugs of other tools: what happens here, thread by thread.

Each row of the table on `docs/evidence.md` has a program below, named after its thread.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import retape
import retape.jax
import retape.torch
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "evidence.md"
ELSEWHERE = {
    "mujoco#2259": "tests/engines/jaxpr/api/test_third_party.py::"
    "test_a_step_of_physics_with_contacts",
    "warp#1350": "examples/warp_solver.py",
    "pytorch#122729": "tests/judges/torch/test_transforms.py::"
    "test_nested_transforms_keep_and_say_so",
    "pyadjoint#178": "tests/schedule/test_interop.py::"
    "test_code_written_for_the_peer_runs_our_schedules",
}
"""Programs that stand where their package is: a test, or an example."""

FEW = retape.fixed_space(snapshots=4)


def threads() -> list[str]:
    return re.findall(r"^\| \[([\w.-]+#\d+)\]", PAGE.read_text(), re.MULTILINE)


def name_of(thread: str) -> str:
    return re.sub(r"\W", "_", thread.lower())


def temporaries(fun: Any, *args: Any) -> int:
    return jax.jit(fun).lower(*args).compile().memory_analysis().temp_size_in_bytes


def decays(a: Any) -> Any:
    """`exp(-a)` by Heun's steps, in a loop that tells its length at the end."""

    def step(s):
        return (s[0] + 0.01, s[1] * (1 - 0.01 * a + 5e-5 * a * a))

    return jax.lax.while_loop(lambda s: s[0] < 0.995, step, (0.0, 1.0))[1]


def close(found: Any, true: Any, relative: float = 1e-3) -> None:
    np.testing.assert_allclose(found, true, rtol=relative)


def jax_2139(_: Path) -> None:
    with pytest.raises(ValueError, match="does not work for lax.while_loop"):
        jax.grad(decays)(0.7)
    close(retape.jax.grad(decays)(0.7), -np.exp(-0.7))


def jax_27748(_: Path) -> None:
    weights = [jnp.full((64, 64), 0.01 * k) for k in range(1, 9)]

    def loss(layer: Any, ws: Any) -> Any:
        x = jnp.ones((512, 64))
        for w in ws:
            x = layer(x, w)
        return jnp.sum(x)

    def layer(x, w):
        return x + jnp.tanh(jax.nn.gelu(x @ w) @ w)

    plain, marked = (
        temporaries(jax.grad(partial(loss, each)), weights)
        for each in (layer, retape.jax.checkpoint(layer))
    )
    assert marked < plain / 2


def jax_7401(_: Path) -> None:
    close(jax.hessian(retape.jax.checkpointed(decays, plan=FEW))(0.7), np.exp(-0.7))


def equinox_282(_: Path) -> None:
    from retape.equinox import while_loop

    def filled(x: Any) -> Any:
        """`x` times 1, 2, 6, 24: each row is read after it was written."""

        def step(state: Any) -> Any:
            i, rows = state
            return i + 1, rows.at[i].set(rows[i - 1] * i)

        start = 1, jnp.zeros(5).at[0].set(x)

        def more(state):
            return state[0] < 5

        return while_loop(
            more, step, start, kind="checkpointed", buffers=lambda s: s[1]
        )[1]

    close(jax.jvp(filled, (2.0,), (1.0,))[1], [1, 1, 2, 6, 24])
    close(jax.grad(lambda x: filled(x)[-1])(2.0), 24)


def solved(a: Any, adjoint: Any) -> Any:
    import diffrax

    term = diffrax.ODETerm(lambda t, y, a: -a * y)
    return diffrax.diffeqsolve(
        term, diffrax.Heun(), 0.0, 1.0, 0.01, jnp.ones(3000), a,
        max_steps=None, adjoint=adjoint,
    ).ys  # fmt: skip


def diffrax_685(_: Path) -> None:
    from retape.diffrax import RetapeAdjoint

    adjoint = RetapeAdjoint(plan=retape.within("400 kB"))
    slope = jax.grad(lambda a: jnp.mean(solved(a, adjoint)))
    # Beside the solve: its start and the cotangent of the mean.
    assert temporaries(slope, 0.7) <= 400_000 + 2 * 12_000
    close(slope(0.7), -np.exp(-0.7))


def diffrax_742(_: Path) -> None:
    def root(x: Any) -> Any:
        def step(i, x):
            return jnp.sqrt(jnp.where(i == 7, 0.0, x))

        return jax.lax.fori_loop(0, 20, step, x)

    fault = retape.jax.measure(root, 4.0, plan=FEW, health=True).health.fault
    assert fault.kind == "reverse" and fault.operation == "sqrt"


def optimistix_151(_: Path) -> None:
    import optimistix

    from retape.optimistix import RetapeAdjoint

    def root(a: Any) -> Any:
        solver = optimistix.Newton(rtol=1e-6, atol=1e-6)
        adjoint = RetapeAdjoint(plan=FEW)

        def square(y, a):
            return y * y - a

        return optimistix.root_find(square, solver, 2.0, a, adjoint=adjoint).value

    close(jax.hessian(root)(9.0), -1 / 108)


def pytorch_197838(_: Path) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64), torch.nn.GELU()] * 6)
    x = torch.ones(128, 64)
    peaks = []
    for budget in ("400 kB", "600 kB"):
        backend = retape.torch.CompilerBudget(budget, backend="aot_eager")
        torch.compile(model, backend=backend)(x).sum().backward()
        peaks.append(backend.plans[0].peak)
        torch._dynamo.reset()
    assert peaks[0] <= 400_000 and peaks[1] <= 600_000


def pytorch_190758(_: Path) -> None:
    def drop(x):
        return torch.nn.functional.dropout(torch.sin(x).exp(), 0.5)

    backend = retape.torch.CompilerBudget("60 kB", backend="aot_eager")
    x = torch.zeros(1000, requires_grad=True)
    y = torch.compile(lambda x: drop(x), backend=backend)(x)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, y.detach())
    torch._dynamo.reset()


def layered(x: torch.Tensor, steps: int) -> torch.Tensor:
    for _ in range(steps):
        x = torch.tanh(x) * 1.1
    return x.sum()


def pytorch_158657(folder: Path) -> None:
    plain, ours = (torch.ones(5000, requires_grad=True) for _ in range(2))
    layered(plain, 40).backward()
    store = retape.DiskStore(folder / "states")
    with retape.torch.recompute(snapshots=4, stage=8, store=store):
        loss = layered(ours, 40)
    assert any((folder / "states").iterdir())
    loss.backward()
    assert plain.grad is not None and torch.equal(plain.grad, ours.grad)


def pytorch_160375(_: Path) -> None:
    plain, ours = (torch.ones(5000, requires_grad=True) for _ in range(2))
    layered(plain, 60).backward()
    with retape.torch.recompute(memory="300 kB") as run:
        loss = layered(ours, 60)
    loss.backward()
    assert run.report.peak_bytes <= 300_000 < 60 * 20_000
    assert plain.grad is not None and torch.equal(plain.grad, ours.grad)


def pytorch_193671(_: Path) -> None:
    def slopes(context: Any) -> Any:
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 1000, requires_grad=True)
        with context:
            y = torch.nn.functional.rrelu(torch.sin(x), training=True).sum()
        y.backward()
        return x.grad

    plain = slopes(torch.enable_grad())
    assert torch.equal(plain, slopes(retape.torch.recompute(snapshots=1, stage=1)))


def waves(state: Any, _: int) -> Any:
    before, u = state
    around = np.roll(u, 1) + np.roll(u, -1) - 2 * u
    return np.stack([u, 2 * u - before + 0.2 * around])


def waves_back(_: Any, k: int, g: Any) -> Any:
    around = np.roll(g[1], 1) + np.roll(g[1], -1) - 2 * g[1]
    return np.stack([-g[1], 2 * g[1] + 0.2 * around + g[0]])


def deepwave_120(_: Path) -> None:
    program = retape.Program(waves, waves_back)
    start = np.random.default_rng(0).standard_normal((2, 50))
    assert retape.check_adjoint(program, start, steps=20).ok
    few, all_states = (
        retape.adjoint(program, start, seed=lambda s: s, steps=200, plan=plan).cotangent
        for plan in (FEW, retape.fixed_space(snapshots=200, stage=1))
    )
    assert np.array_equal(few, all_states)


def reactant_3119(_: Path) -> None:
    for length in (1, 2, 7, 64):

        def counted(x: Any, n: int = length) -> Any:
            return jax.lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + 0.1 * i * x, x)

        forward = jax.jvp(counted, (0.3,), (1.0,))[1]
        close(retape.jax.grad(counted, plan=FEW)(0.3), forward, 1e-5)


def enzyme_jax_2936(_: Path) -> None:
    def slope(length: int) -> Any:
        def step(x, _):
            return (jnp.sin(x) * 1.01, None)

        def run(x):
            return retape.jax.scan(step, x, None, length=length, levels=2)[0]

        return jax.grad(lambda x: jnp.sum(run(x)))

    x = jnp.ones(1000)
    prime, even = (temporaries(slope(length), x) for length in (1009, 1024))
    assert prime < 1.1 * even < 0.2 * 1024 * 4000


def numba_8565(_: Path) -> None:
    from retape import native

    def compounded(rate: float, years: int) -> float:
        total = 1.0
        for _ in range(years):
            total *= 1 + rate
        return total

    close(native.grad(compounded)(0.05, 300), 300 * 1.05**299, 1e-9)


def jaxley_762(_: Path) -> None:
    def step(x, _):
        return (jnp.tanh(x) * 1.01, None)

    def end(scan: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(scan(step, x, None, length=400)[0]))

    x = jnp.ones(1000)
    plain, ours = end(jax.lax.scan), end(partial(retape.jax.scan, levels=2))
    close(ours(x), plain(x), 1e-5)
    assert temporaries(ours, x) < temporaries(plain, x) / 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow("diffrax#685", "optimistix#151", "jax#7401", "pytorch#197838")
@pytest.mark.parametrize("thread", [t for t in threads() if t not in ELSEWHERE])
def test_what_is_a_bug_elsewhere_is_right_here(thread: str, tmp_path: Path) -> None:
    globals()[name_of(thread)](tmp_path)


def test_every_row_of_the_page_has_a_program() -> None:
    found = threads()
    assert len(found) == len(set(found)) >= 20 and set(found) >= set(ELSEWHERE)
    for thread in found:
        file, _, test = ELSEWHERE.get(thread, "").partition("::")
        if not file:
            assert callable(globals()[name_of(thread)]), thread
        else:
            assert test in (ROOT / file).read_text()
