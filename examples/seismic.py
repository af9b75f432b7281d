"""A small seismic inversion: the speed of sound, from what receivers at the top heard.

The wave equation in two dimensions and its adjoint by hand, in NumPy. Snapshots of the
field are packed within an error bound: more of them fit into the same bytes, so fewer
steps are run again. The gradient is compared with the exact one.
"""

import numpy as np

import retape
from retape.storage import CodecStore, bounded

CELLS, STEPS, SNAPSHOTS = 120, 320, 4
RECEIVERS = (22, slice(22, -22, 4))
SOURCE = (22, CELLS // 2)
AT = np.arange(CELLS)
DEPTH = np.minimum(AT, AT[::-1])
SPONGE = np.exp(-((0.015 * np.maximum(0, 20 - DEPTH)) ** 2))
DAMPING = np.minimum.outer(SPONGE, SPONGE)


def laplacian(u):
    """The usual five points; its own transpose, as nothing is outside."""
    out = -4.0 * u
    out[1:] += u[:-1]
    out[:-1] += u[1:]
    out[:, 1:] += u[:, :-1]
    out[:, :-1] += u[:, 1:]
    return out


def fine(model):
    """A model of the speed on the field's cells: one of it is four by four of them."""
    return model.repeat(4, axis=0).repeat(4, axis=1)


def coarse(cells):
    """The transpose of `fine`."""
    return cells.reshape(CELLS // 4, 4, CELLS // 4, 4).sum(axis=(1, 3))


def wavelet(k):
    """A Ricker wavelet of 40 steps to a period, 16 cells to a length."""
    t = (np.pi * (k - 52) / 40.0) ** 2
    return (1.0 - 2.0 * t) * np.exp(-t)


def stepping(model):
    """The step for a model, squared Courant numbers."""
    speed = fine(model)

    def step(state, k):
        before, u = state
        after = DAMPING * (2.0 * u - before + speed * laplacian(u))
        after[SOURCE] += wavelet(k)
        return np.stack([DAMPING * u, after])

    return step


def inverting(model, heard):
    """Misfit and gradient of a model, as a function of a store and a plan."""
    speed = fine(model)

    def reverse_step(state, k, cotangent):
        g_before, g, g_model = cotangent
        damped, u = DAMPING * g, state[1]
        g_u = 2.0 * damped + laplacian(speed * damped) + DAMPING * g_before
        return -damped, g_u, g_model + coarse(damped * laplacian(u))

    traces = np.zeros_like(heard)

    def observe(state, k):
        # What the receivers hear in the first pass, which is exact: states that are run
        # again from a packed snapshot are near, and a residual is a small difference.
        traces[k] = state[1][RECEIVERS]

    def cost(state, k):
        return 0.5 * float(np.sum((state[1][RECEIVERS] - heard[k]) ** 2))

    def cost_gradient(state, k):
        g = np.zeros((2, CELLS, CELLS))
        g[1][RECEIVERS] = traces[k] - heard[k]
        return g[0], g[1], np.zeros_like(model)

    def gradient(store=None, snapshots=SNAPSHOTS):
        return retape.adjoint(
            retape.Program(
                stepping(model),
                reverse_step,
                observe=observe,
                cost=cost,
                cost_gradient=cost_gradient,
            ),
            np.zeros((2, CELLS, CELLS)),
            steps=STEPS,
            plan=retape.fixed_space(snapshots=snapshots, stage=1),
            store=store,
        )

    return gradient


def main():
    """Compare the gradients, then take some steps towards the true model."""
    x, y = np.meshgrid(AT[2::4], AT[2::4], indexing="ij")
    start = np.full((CELLS // 4, CELLS // 4), 0.16)
    true = start * (1 + 0.3 * np.exp(-((x - 60) ** 2 + (y - 60) ** 2) / 50))
    state = np.zeros((2, CELLS, CELLS))
    heard = np.zeros((STEPS + 1, *state[1][RECEIVERS].shape))
    for k in range(STEPS + 1):
        heard[k] = state[1][RECEIVERS]
        state = stepping(true)(state, k)

    codec = bounded(relative=1e-5)
    gradient = inverting(start, heard)
    plain, more = gradient(), 10 * SNAPSHOTS
    store = CodecStore(retape.MemoryStore(), codec)
    packed = gradient(store, more)
    away = np.linalg.norm(packed.cotangent[2] - plain.cotangent[2])
    away /= np.linalg.norm(plain.cotangent[2])
    for name, report in (("exact", plain.report), ("packed", packed.report)):
        print(
            f"{name}: {report.peak_snapshots} snapshots in {report.peak_bytes} bytes, "
            f"{report.advances} advances"
        )
    ratio = store.raw_bytes / store.packed_bytes
    print(f"{ratio:.3g} times smaller with {codec}, the gradient is off by {away:.1e}")
    assert ratio > 10 and away < 1e-3
    assert packed.report.peak_bytes <= plain.report.peak_bytes
    assert packed.report.advances < plain.report.advances

    model, misfits = start, []
    for _ in range(2):
        found = inverting(model, heard)(CodecStore(retape.MemoryStore(), codec), more)
        misfits.append(found.cost)
        down = found.cotangent[2] * (x > 34)
        model = model - 0.002 * down / np.abs(down).max()
    print("misfits:", " ".join(f"{misfit:.4g}" for misfit in misfits))
    assert misfits[-1] < misfits[0]


if __name__ == "__main__":
    main()
