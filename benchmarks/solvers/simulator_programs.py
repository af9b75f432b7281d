"""Programs of simulators of bodies, fluids and cells, for the table over them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.solvers.program import Program, over, quiet

BALL = """
<mujoco>
  <option timestep="0.005" iterations="6" ls_iterations="6" integrator="Euler"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .3">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
      <joint type="hinge" axis="0 1 0"/>
      <geom type="capsule" size=".05 .1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


def mjx() -> Program:
    """A capsule that falls on a plane and slides, 200 steps."""
    return _mujoco("MJX, contacts, 6 iterations", masked=False)


def mjx_masked() -> Program:
    """The same, with MJX's loop of unknown length replaced by a masked scan."""
    return _mujoco("MJX, masked scan", masked=True)


def _mujoco(name: str, masked: bool) -> Program:
    import mujoco
    from mujoco import mjx
    from mujoco.mjx._src import solver

    models: Any = mujoco
    model = mjx.put_model(models.MjModel.from_xml_string(BALL))
    data = mjx.make_data(model)

    def scanned(test: Any, body: Any, state: Any) -> Any:
        return solver._while_loop_scan(test, body, state, model.opt.iterations)

    def fall(v: Any) -> Any:
        usual = solver.jax.lax.while_loop
        if masked:
            solver.jax.lax.while_loop = scanned
        try:
            step = lambda i, d: mjx.step(model, d)  # noqa: E731
            after = jax.lax.fori_loop(0, 200, step, data.replace(qvel=v))
        finally:
            solver.jax.lax.while_loop = usual
        return jnp.sum(after.qpos**2)

    return Program(name, fall, jnp.asarray([0.3, -0.7, 0.5]))


def jax_cfd() -> Program:
    """Vorticity on 64 x 64, 1000 steps of Crank-Nicolson and Runge-Kutta."""
    import jax_cfd.base as cfd
    import jax_cfd.spectral as spectral

    grid = cfd.grids.Grid((64, 64), domain=((0, 2 * np.pi), (0, 2 * np.pi)))
    equation = spectral.equations.NavierStokes2D(1e-3, grid, smooth=True)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 1e-3)
    x = jnp.linspace(0, 2 * np.pi, 64, endpoint=False)

    def run(w: Any) -> Any:
        return jnp.sum(jnp.fft.irfftn(over(1000, step, jnp.fft.rfftn(w))) ** 2)

    return Program("jax-cfd, 1000 steps", run, jnp.sin(x)[:, None] * jnp.cos(2 * x))


def jaxley() -> Program:
    """A neuron of six compartments, Hodgkin-Huxley, 4000 steps, by a conductance."""
    import jaxley as jx
    from jaxley.channels import HH

    with quiet():
        parts = [jx.Branch(jx.Compartment(), ncomp=2) for _ in range(3)]
        cell = jx.Cell(parts, parents=[-1, 0, 0])
        cell.insert(HH())
        cell.branch(0).comp(0).record()
        current = jx.step_current(1.0, 1.0, 0.1, 0.025, 100.0)
        cell.branch(0).comp(0).stimulate(current)
        cell.make_trainable("HH_gNa")
    (name,) = cell.get_parameters()[0]

    def run(g: Any) -> Any:
        return jnp.mean(jx.integrate(cell, params=[{name: g}]) ** 2)

    return Program("jaxley, 4000 steps", run, cell.get_parameters()[0][name])


def xlb() -> Program:
    """A vortex in a box of 64 x 64, 1000 steps of lattice Boltzmann, by its speed."""
    import xlb as lattice
    from xlb.compute_backend import ComputeBackend
    from xlb.grid import grid_factory
    from xlb.operator.boundary_condition import FullwayBounceBackBC
    from xlb.operator.stepper import IncompressibleNavierStokesStepper

    backend, policy = ComputeBackend.JAX, lattice.PrecisionPolicy.FP32FP32
    lattice.init(lattice.velocity_set.D2Q9(policy, backend), backend, policy)
    grid = grid_factory((64, 64), compute_backend=backend)
    box, sides = grid.bounding_box_indices(), ("left", "right", "top", "bottom")
    walls = [sum((box[side][i] for side in sides), []) for i in range(2)]
    walls = np.unique(np.array(walls), axis=-1).tolist()
    step = IncompressibleNavierStokesStepper(
        grid, boundary_conditions=[FullwayBounceBackBC(indices=walls)]
    )
    _, _, mask, missing = step.prepare_fields()
    x = jnp.linspace(0.0, 2 * np.pi, 64, endpoint=False)

    def run(speed: Any) -> Any:
        vortex = [jnp.outer(jnp.sin(x), jnp.cos(x)), -jnp.outer(jnp.cos(x), jnp.sin(x))]
        f = step.equilibrium(jnp.ones((1, 64, 64)), speed * jnp.stack(vortex))
        f = over(1000, lambda f: step(f, f, mask, missing, 1.6, 0)[1], f)
        return jnp.sum(step.macroscopic(f)[1] ** 2)

    return Program("XLB, 1000 steps", run, jnp.asarray(0.05))
