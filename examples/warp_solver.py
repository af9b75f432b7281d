"""NVIDIA Warp: the adjoint of a long run of kernels, with one step on `wp.Tape`.

    pip install warp-lang
    python examples/warp_solver.py --steps 2000

`wp.Tape` records every launch of a run, so each step needs arrays of its own: memory
grows with the number of steps. And an array that is used again is reversed with the
wrong values, without an error. `WarpSteps` records one step at a time, on a copy of a
snapshot, and refuses a step that overwrites what its adjoint reads.
"""

import argparse
from typing import Any

import numpy as np

import retape

wp: Any = None
try:
    import warp as wp  # pyright: ignore[reportMissingImports]
except ImportError:
    pass

OVERWRITES = "may corrupt gradient computation"


class WarpSteps:
    """A step of Warp kernels, and its adjoint, for `retape.adjoint`.

    Args:
        step: From an array (the state before step k), k and the parameters to a new
            array, the state after it. It launches kernels.
        parameters: An array that all steps read.

    The cotangent is a pair: of the state, and of the parameters.
    """

    def __init__(self, step, parameters):
        self.step, self.parameters = step, parameters
        self.parameters.requires_grad = True
        # Warp's own watch over arrays that are written after they were read.
        wp.config.verify_autograd_array_access = True
        wp.set_logger(Refuse(wp.get_logger()))
        # Snapshots stay on the device; on disk they are NumPy arrays.
        retape.register_state(
            wp.array,
            copy=wp.clone,
            nbytes=lambda a: a.capacity,
            to_arrays=lambda a: a.numpy(),
            from_arrays=lambda a: wp.array(a),
        )

    def forward(self, x, k):
        """Run a step without a tape."""
        return self.step(x, k, self.parameters)

    def reverse(self, x, k, cotangent):
        """Record one step, and sweep it back."""
        after, gathered = cotangent
        before = wp.clone(x, requires_grad=True)
        self.parameters.grad.zero_()
        with wp.Tape() as tape:
            y = self.step(before, k, self.parameters)
        if y.ptr == before.ptr or not np.array_equal(before.numpy(), x.numpy()):
            raise retape.MachineError(
                f"step {k} overwrites the state that it was given, and its adjoint "
                "would read the new values. Write to another array."
            )
        tape.backward(grads={y: after})
        total = gathered.numpy() + self.parameters.grad.numpy()
        return before.grad, wp.array(total, dtype=gathered.dtype)

    def gradient(self, x0, seed, steps, plan, done=None, **options):
        """The last state, the two cotangents and the report."""
        zero = wp.zeros_like(self.parameters, requires_grad=False)
        done = retape.adjoint(
            retape.Program(self.forward, self.reverse, done=done),
            x0,
            seed=lambda x: (seed(x), zero),
            steps=steps,
            plan=plan,
            **options,
        )
        return done.state, done.cotangent, done.report


class Refuse:
    """Warp's logger, for which a corrupted gradient is an error."""

    def __init__(self, usual):
        self.usual = usual

    def warning(self, message, **options):
        if OVERWRITES in message:
            raise retape.MachineError(f"{message} Write to another array.")
        self.usual.warning(message, **options)

    def __getattr__(self, name):
        return getattr(self.usual, name)


def kernels():
    """A step of heat conduction, and one that works in place."""

    field = wp.array(dtype=float)

    @wp.kernel(module="unique")
    def conduct(u: field, c: field, v: field):  # pyright: ignore
        i = wp.tid()
        n = u.shape[0]
        left, right = u[(i + n - 1) % n], u[(i + 1) % n]
        v[i] = u[i] + c[i] * (left + right - 2.0 * u[i]) + 0.01 * wp.sin(u[i])

    @wp.kernel(module="unique")
    def grow(u: field):  # pyright: ignore
        i = wp.tid()
        u[i] = u[i] * u[i]

    def step(u, k, c):
        v = wp.empty_like(u, requires_grad=True)
        wp.launch(conduct, dim=len(u), inputs=[u, c], outputs=[v])
        return v

    def in_place(u, k, c):
        wp.launch(grow, dim=len(u), inputs=[u])
        return u

    return step, in_place


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=10_000)
    args = parser.parse_args()
    if wp is None:
        print("skipped, since Warp is not installed: pip install warp-lang")
        return
    wp.config.log_level = wp.LOG_WARNING
    step, in_place = kernels()
    n, rng = args.cells, np.random.default_rng(0)
    x0 = wp.array(rng.normal(size=n).astype(np.float32))
    c = wp.array(np.full(n, 0.2, np.float32), requires_grad=True)
    machine = WarpSteps(step, c)
    plan = retape.fixed_space(snapshots=10)
    last, (gx, gc), report = machine.gradient(x0, wp.clone, args.steps, plan)
    print(report)

    # The same by one tape, whose arrays are kept.
    first = wp.clone(x0, requires_grad=True)
    c.grad.zero_()
    states = [first]
    with wp.Tape() as tape:
        for k in range(args.steps):
            states.append(step(states[-1], k, c))
    tape.backward(grads={states[-1]: wp.clone(states[-1])})
    assert np.array_equal(states[-1].numpy(), last.numpy())
    for ours, theirs in ((gx, first.grad), (gc, c.grad)):
        far = np.abs(ours.numpy() - theirs.numpy()).max() / np.abs(theirs.numpy()).max()
        print(f"differs from one tape of all steps by {far:.0e}")
    # A state and its gradient for each step; here snapshots, the states of one stage,
    # and what one step needs: four arrays and their gradients.
    ours = report.peak_bytes + (report.longest_stage + 8) * x0.capacity
    print(f"one tape: {2 * sum(s.capacity for s in states) / 1e6:.1f} MB,", end=" ")
    print(f"here: {ours / 1e6:.1f} MB")

    try:
        WarpSteps(in_place, c).gradient(x0, wp.clone, 4, plan)
    except retape.MachineError as error:
        print("refused:", str(error).split(" to argument ")[-1])


if __name__ == "__main__":
    main()
