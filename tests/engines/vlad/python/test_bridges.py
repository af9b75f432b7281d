"""Compiled functions in JAX, in PyTorch, and as steps of `retape.adjoint`."""

import math
from typing import Any

import jax
import numpy as np
import pytest
import torch

import retape
from retape import native


def root(a):
    x = 1.0
    while abs(x * x - a) > 1e-12:
        x = 0.5 * (x + a / x)
    return x


def turned(a, angle):
    c, s = math.cos(angle), math.sin(angle)
    b = np.zeros(2)
    b[0] = c * a[0] - s * a[1]
    b[1] = s * a[0] + c * a[1]
    return b


VECTOR = np.array([0.6, -1.1])


def _turned_by_jax(a: Any, angle: Any) -> Any:
    c, s = jax.numpy.cos(angle), jax.numpy.sin(angle)
    return jax.numpy.stack([c * a[0] - s * a[1], s * a[0] + c * a[1]])


def test_a_function_in_jax_is_jitted_mapped_and_differentiated() -> None:
    f = native.to_jax(root)
    assert jax.jit(f)(2.0) == pytest.approx(math.sqrt(2.0), rel=1e-6)
    assert jax.jit(jax.grad(f))(2.0) == pytest.approx(0.5 / math.sqrt(2.0), rel=1e-6)
    points = jax.numpy.array([2.0, 9.0])
    slopes = jax.vmap(jax.grad(f))(points)
    assert np.asarray(slopes) == pytest.approx(0.5 / np.sqrt([2.0, 9.0]), rel=1e-6)


@pytest.mark.slow
def test_a_function_of_arrays_in_jax_has_the_gradient_of_jax() -> None:
    g = native.to_jax(turned, (2,))

    def total(h: Any) -> Any:
        return lambda a, b: (h(a, b) ** 2 * jax.numpy.array([1.0, 3.0])).sum()

    ours = jax.jit(jax.grad(total(g), (0, 1)))(VECTOR, 0.3)
    theirs = jax.grad(total(_turned_by_jax), (0, 1))(VECTOR, 0.3)
    for a, b in zip(ours, theirs, strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-6)


def test_a_wrong_shape_in_jax_is_told() -> None:
    with pytest.raises(Exception, match="pass the right `shape` to `to_jax`"):
        jax.block_until_ready(native.to_jax(turned, (3,))(VECTOR, 0.3))


def test_a_function_in_torch_is_differentiated() -> None:
    f = native.to_torch(turned)
    a = torch.tensor(VECTOR, requires_grad=True)
    angle = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1.0, 3.0], dtype=torch.float64)
    (f(a, angle) ** 2 * weight).sum().backward()
    c, s = torch.cos(angle), torch.sin(angle)
    b = torch.stack([c * a[0] - s * a[1], s * a[0] + c * a[1]])
    expected = torch.autograd.grad((b**2 * weight).sum(), (a, angle))
    torch.testing.assert_close((a.grad, angle.grad), expected, rtol=1e-13, atol=0.0)
    assert f(a, angle).dtype == torch.float64
    assert torch.autograd.gradcheck(f, (a, angle))


def test_a_step_and_its_cotangents_in_an_adjoint() -> None:
    step = native.function(turned)

    def back(x: Any, k: int, c: Any) -> Any:
        _, (found, _) = native.vjp(step, (x, 0.1), c)
        return found

    done = retape.adjoint(
        retape.Program(lambda x, k: step(x, 0.1), back),
        VECTOR,
        seed=lambda x: 1.0 * x,
        steps=50,
    )
    assert done.cotangent == pytest.approx(VECTOR, rel=1e-12)  # rotations keep lengths


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_cotangents_of_values_of_every_kind(engine: Any) -> None:
    matrix = np.arange(4.0).reshape(2, 2)

    def parts(m, x):
        return (m * x, x * x)

    value, (by_m, by_x) = native.vjp(
        parts, (matrix, 3.0), (np.ones((2, 2)), 10.0), engine=engine
    )
    assert np.array_equal(value[0], 3.0 * matrix)
    assert np.array_equal(by_m, np.full((2, 2), 3.0))
    assert by_x == matrix.sum() + 60.0


def power(x: Any, weights: Any, n: int, square: bool) -> Any:
    y = 1.0
    for k in range(n):
        y *= x * weights[k]
    return y * y if square else y


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_ints_and_bools_without_a_derivative_stay_what_they_are(engine: Any) -> None:
    weights = np.array([0.5, 2.0, 3.0])
    given = 1.5, weights, 3, True
    exact = power(*given)
    along = 0.5, np.array([1.0, 0.0, -1.0])
    value, tangent = native.jvp(power, given, (*along, None, None), engine=engine)
    assert value == pytest.approx(exact)
    by = exact * 6 / 1.5, exact * 2 / weights
    assert tangent == pytest.approx(by[0] * along[0] + by[1] @ along[1])
    value, (by_x, by_weights) = native.vjp(
        power, given, 1.0, argnums=(0, 1), engine=engine
    )
    assert (value, by_x) == pytest.approx((exact, by[0]))
    np.testing.assert_allclose(by_weights, by[1])
    _, swapped = native.vjp(power, given, 1.0, argnums=(1, 0), engine=engine)
    assert swapped[1] == by_x and np.array_equal(swapped[0], by_weights)
    assert native.jvp(power, given, (None,) * 4, engine=engine)[1] == 0.0


def test_an_int_with_a_derivative_is_a_float_and_refusals_say_so() -> None:
    found = native.jvp(root, (4,), (1.0,), engine="interpreter")
    assert found == pytest.approx((2.0, 0.25))
    with pytest.raises(native.CompileError, match="takes ints") as error:
        native.jvp(power, (1.5, np.ones(3), 3, True), (1.0, np.ones(3), 0.0, None))
    assert error.value.__notes__ == [
        "int given as argument 2 is a float here; give `None` as its tangent to keep "
        "it an int"
    ]
    with pytest.raises(native.CompileError, match="takes ints") as error:
        native.vjp(power, (1.5, np.ones(3), 3, True), 1.0, argnums=(0, 2))
    assert "leave it out of `argnums`" in error.value.__notes__[0]
