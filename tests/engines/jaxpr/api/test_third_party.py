"""Programs from other packages that `jax.grad` refuses, against forward mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.optimize
import numpy as np
import pytest
import scipy.linalg

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=4, stage=4)


def refused(fun: Callable[..., Any], *args: Any) -> None:
    """Plain reverse mode does not do it."""
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.eval_shape(jax.grad(fun), *args)


def check(fun: Callable[[Any], Any], x: Any, plan: Any = PLAN) -> Any:
    """Value and gradient, along two directions, to 1e-8."""
    value, gradient = jax.jit(retape.jax.value_and_grad(fun, plan=plan))(x)
    forwards = jax.jit(lambda x, t: jax.jvp(fun, (x,), (t,)))
    random = np.random.default_rng(0)
    for _ in range(2):
        along = jnp.asarray(random.standard_normal(np.shape(x)))
        want, slope = forwards(x, along)
        assert_close(value, want, 1e-8)
        assert_close(jnp.vdot(gradient, along), slope, 1e-8)
    return gradient


@pytest.mark.slow
def test_expm() -> None:
    """The squaring phase of `expm` is a loop whose length depends on the norm."""
    matrix = jnp.asarray([[0.3, 4.1, -1.0], [-2.0, 0.5, 3.0], [0.1, 0.2, -9.0]])
    weights = jnp.arange(9.0).reshape(3, 3)

    def fun(m: Any) -> Any:
        return jnp.vdot(weights, jax.scipy.linalg.expm(m))

    gradient = check(fun, matrix)
    # An oracle outside JAX: the derivative's adjoint is that of the transpose.
    want = scipy.linalg.expm_frechet(np.asarray(matrix).T, weights, compute_expm=False)
    assert_close(gradient, want, 1e-8)


@pytest.mark.slow
def test_minimize() -> None:
    def fun(target: Any) -> Any:
        def rosenbrock(p: Any) -> Any:
            return jnp.sum(
                10 * (p[1:] - p[:-1] ** 2) ** 2 + (target[:-1] - p[:-1]) ** 2
            )

        found = jax.scipy.optimize.minimize(
            rosenbrock, jnp.zeros(2), method="BFGS", tol=1e-3, options={"maxiter": 6}
        )
        return jnp.sum(found.x * jnp.arange(1.0, 3.0))

    target = jnp.asarray([0.7, 0.4])
    refused(fun, target)
    check(fun, target)


MODEL = """
<mujoco>
  <option timestep="0.005" iterations="3" ls_iterations="4" integrator="Euler"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body pos="0 0 0.095">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def falling() -> Any:
    """A sphere pressed into a plane, sliding: a step of physics with a contact."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mujoco = pytest.importorskip("mujoco")
        mjx = pytest.importorskip("mujoco.mjx")
    model = mjx.put_model(mujoco.MjModel.from_xml_string(MODEL))
    data = mjx.make_data(model)

    def fun(v: Any) -> Any:
        after = mjx.step(model, data.replace(qvel=v))
        return jnp.vdot(after.qpos, jnp.arange(1.0, 3.0)) + jnp.sum(after.qvel**2)

    return fun


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_step_of_physics_with_contacts(falling: Any) -> None:
    v = jnp.asarray([0.3, -0.7])
    refused(falling, v)
    gradient = check(falling, v)
    assert np.all(np.abs(gradient) > 1e-6)
