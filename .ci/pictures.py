"""Draws every picture of the documentation anew: `make pictures`.

Measured lines differ a little between machines; schedules do not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from explorer import explorer

import retape
import retape.viz

ASSETS = Path(__file__).resolve().parents[1] / "docs" / "assets"


def steps() -> Any:
    """A step function under nine snapshots."""
    done = retape.measure(
        retape.Program(lambda u, k: 1.0001 * u, lambda u, k, g: 1.0001 * g),
        np.ones(100_000),
        seed=lambda u: u,
        steps=200,
        plan=retape.fixed_space(snapshots=8, stage=8),
    )
    return done.report


def jax_program() -> Any:
    """A `while_loop` of JAX."""
    import jax
    import jax.numpy as jnp

    import retape.jax

    def simulate(x: Any) -> Any:
        def step(state: Any) -> Any:
            return jnp.sin(state[0]) * 1.01, state[1] + 1

        return jax.lax.while_loop(lambda state: state[1] < 400, step, (x, 0))[0].sum()

    plan = retape.fixed_space(snapshots=8)
    return retape.jax.measure(simulate, jnp.ones(100_000), plan=plan).report


def torch_program() -> Any:
    """Twenty-four layers of PyTorch in 12 MB, after two runs."""
    import torch

    import retape.torch

    torch.manual_seed(0)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU())
        for _ in range(24)
    ]
    model = torch.nn.Sequential(*layers)
    meter = retape.torch.MemoryMeter()
    for _ in range(3):
        meter = retape.torch.MemoryMeter()
        with meter:
            with retape.torch.recompute(memory="12MB"):
                loss = model(torch.ones(512, 256)).sum()
            loss.backward()
        model.zero_grad()
    return meter


def figures() -> Iterator[tuple[str, Any]]:
    """Names of files and figures."""
    from matplotlib import pyplot as plt

    runs = {"steps": steps(), "jax": jax_program(), "torch": torch_program()}
    schedule = retape.fixed_space(snapshots=4).schedule(40)
    for ground, style in (("light", {}), ("dark", "dark_background")):
        with plt.style.context(style):
            for name, report in runs.items():
                yield f"timeline-{name}-{ground}", retape.viz.timeline(report)
            yield f"schedule-{ground}", retape.viz.draw_figure(schedule)


def main() -> None:
    """Write all of them."""
    import matplotlib

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "retape"})
    matplotlib.rcParams["font.size"] = 12  # legible where a phone makes it smaller
    for name, figure in figures():
        # No date, so that a picture changes only if what it shows does.
        figure.savefig(ASSETS / f"{name}.svg", metadata={"Date": None})
        print(f"docs/assets/{name}.svg")
    (ASSETS / "explorer.html").write_text(explorer(), encoding="utf-8")
    print("docs/assets/explorer.html")


if __name__ == "__main__":
    main()
