"""A small benchmark of each engine, as JSON: `make bench-quick`, under three minutes.

Each figure is a ratio or a count. Bytes and counts are the same on every machine with
the same releases; times are ratios within one process, the least of several. Figures
that got worse since the committed book (`docs/assets/bench-quick.json`) are named on
standard error. `--write` makes what was found the book, and its page.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from time import perf_counter
from typing import Any

import numpy as np
from benchmarks import harness

import retape
import retape.schedule

ROOT = harness.ROOT
BOOK = ROOT / "docs" / "assets" / "bench-quick.json"
PAGE = ROOT / "docs" / "benchmarks.md"
MARK = "<!-- figures -->"

Figures = dict[str, dict[str, Any]]

least = partial(harness.least, clock=perf_counter)


def schedules() -> Figures:
    """Advances over the fewest possible; and to make a million actions."""
    made = retape.fixed_space(snapshots=20, stage=1).schedule(200_000)
    advances = made.counts().advances
    best = retape.schedule.Schedule(200_000, 20).counts().advances
    seconds = least(lambda: sum(1 for _ in made), 2)
    return {
        "advances / fewest": figure(
            advances / best, "count", "200,000 steps, 20 slots"
        ),
        "actions a second": figure(
            sum(1 for _ in made) / seconds, "rate", "made and thrown away"
        ),
    }


def step_functions() -> Figures:
    """The heap of a run against what storing every state takes."""
    size, steps = 20_000, 1000
    x0 = np.ones(size)

    def step(u: Any, k: int) -> Any:
        return u + 0.1 * (np.roll(u, 1) + np.roll(u, -1) - 2 * u)

    def run(call: Any = retape.adjoint) -> retape.Adjoint[Any, Any]:
        plan = retape.fixed_space(snapshots=10)
        return call(
            retape.Program(step, lambda u, k, g: step(g, k)),
            x0,
            seed=lambda u: u,
            steps=steps,
            plan=plan,
        )

    memory = run(retape.measure).report.memory
    assert memory is not None
    everything = (steps + 1) * x0.nbytes

    def plain() -> None:
        states = [x0]
        for k in range(steps):
            states.append(step(states[-1], k))
        g = states[-1]
        for k in reversed(range(steps)):
            g = step(g, k)

    ratio = least(run, 3) / least(plain, 3)
    return {
        "bytes / all states": figure(
            memory.measured_peak / everything, "bytes", "heap"
        ),
        "heap / predicted": figure(
            memory.measured_peak / memory.predicted_peak, "bytes", "tracemalloc"
        ),
        "time / all states": figure(ratio, "time", "1,000 steps, 10 snapshots"),
    }


def jax_programs() -> Figures:
    """A scan of 2,000 steps under a plan, against JAX's own gradient."""
    import jax
    import jax.numpy as jnp
    from benchmarks.jax.candidates import compiled

    import retape.jax

    def f(rate: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            return y + 0.1 * (
                jnp.roll(y, 1) + jnp.roll(y, -1) - 2 * y
            ) - rate * y**3, None

        return jnp.mean(jax.lax.scan(step, jnp.ones(20_000), length=2000)[0])

    plan = retape.fixed_space(snapshots=20)
    ours = compiled(retape.jax.grad(f, plan=plan), 0.01)
    plain = compiled(jax.grad(f), 0.01)
    ratio = least(lambda: ours(0.01), 3) / least(lambda: plain(0.01), 3)
    note = "scan, 2,000 steps, 20 snapshots"
    return {
        "bytes / jax.grad": figure(ours.nbytes / plain.nbytes, "bytes", note),
        "time / jax.grad": figure(ratio, "time", note),
        "compiling / jax.grad": figure(ours.seconds / plain.seconds, "time", note),
    }


def torch_programs() -> Figures:
    """24 layers in a third of their bytes, against the plain program."""
    import torch

    import retape.torch

    torch.manual_seed(0)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU())
        for _ in range(24)
    ]
    model, batch = torch.nn.Sequential(*layers), torch.ones(1024, 256)

    def train(memory: str) -> Any:
        model.zero_grad()
        with retape.torch.recompute(memory=memory) as run:
            loss = model(batch).square().mean()
        loss.backward()
        return run.report

    def plain() -> None:
        model.zero_grad()
        model(batch).square().mean().backward()

    everything = train("1GB").peak_bytes
    for _ in range(3):
        report = train("20MB")
    ratio = least(lambda: train("20MB")) / least(plain)
    return {
        "bytes / everything": figure(report.peak_bytes / everything, "bytes", "20 MB"),
        "run again / operators": figure(
            report.recomputed / report.steps, "count", "from the third run on"
        ),
        "time / plain PyTorch": figure(ratio, "time", "a training step"),
    }


ENGINES: dict[str, Callable[[], Figures]] = {
    "schedules": schedules,
    "step functions": step_functions,
    "JAX": jax_programs,
    "PyTorch": torch_programs,
}


def figure(value: float, kind: str, note: str) -> dict[str, Any]:
    """One figure; of a rate more is better, of everything else less."""
    return {"value": float(f"{value:.3g}"), "kind": kind, "note": note}


def book(engines: Iterable[str]) -> dict[str, Any]:
    """Figures of some engines, and where and when they were taken."""
    began = perf_counter()
    figures = {name: ENGINES[name]() for name in engines}
    git = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout
    packages = ("jax", "jaxlib", "torch", "numpy")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.strip(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "releases": {name: metadata.version(name) for name in packages},
        "seconds": round(perf_counter() - began),
        "figures": figures,
    }


def worse(new: Figures, old: Figures) -> list[str]:
    """Bytes and counts that are more than 5 percent worse, times that are twice as bad.

    Times are told with a large margin: other work on the machine is in them.
    """
    told: list[str] = []
    for name, before in old.items():
        after = new.get(name)
        if after is None:
            told.append(f"{name}: no longer measured")
            continue
        ratio = after["value"] / before["value"]
        if before["kind"] == "rate":
            ratio = 1 / ratio
        if ratio > (1.05 if before["kind"] in ("bytes", "count") else 2.0):
            told.append(f"{name}: {before['value']} before, {after['value']} now")
    return told


def as_page(found: dict[str, Any], text: str) -> str:
    """The page with the figures as a table."""
    releases = ", ".join(f"{name} {r}" for name, r in found["releases"].items())
    lines = [
        f"{found['machine']}, Python {found['python']}, {releases}; {found['date']}, "
        f"commit {found['commit']}, {found['seconds']} s.",
        "",
        "| | figure | value | |",
        "|---|---|---|---|",
    ]
    for engine, figures in found["figures"].items():
        lines += [
            f"| {engine} | {name} | {each['value']:,g} | {each['note']} |"
            for name, each in figures.items()
        ]
    head = text.partition(MARK)[0]
    return head + MARK + "\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Print the figures; name what got worse."""
    quick = {"names": ["schedules", "step functions"]}
    options = harness.asked(__doc__, ENGINES, quick, write=False)
    if options.write and options.names != list(ENGINES):
        sys.exit("--write is for the figures of all engines: name none")
    found = book(options.names)
    print(json.dumps(found, indent=2))
    if BOOK.exists():
        old = json.loads(BOOK.read_text())
        for engine in options.names:
            for line in worse(found["figures"][engine], old["figures"].get(engine, {})):
                print(f"worse than {old['commit']}: {engine}, {line}", file=sys.stderr)
    if options.write:
        BOOK.write_text(json.dumps(found, indent=2) + "\n")
        PAGE.write_text(as_page(found, PAGE.read_text()))


if __name__ == "__main__":
    main()
