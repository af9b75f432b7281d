"""Rules, `jax.checkpoint` and names, built in either way that a release of JAX can.

With the flags `jax_remat3`, `jax_custom_jvp3` and `jax_custom_vjp3` all of them are
"hijax" primitives, which hold their programs out of sight.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import hijax

import retape
import retape.jax

pytestmark = pytest.mark.release

PLAN = retape.fixed_space(snapshots=3, stage=2)
X = np.linspace(0.3, 0.9, 4)
FLAGS = ("jax_remat3", "jax_custom_jvp3", "jax_custom_vjp3")
"""Under which JAX builds them of the new kind: from 0.9 on one after the other."""


@pytest.fixture(params=["old", "new"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What JAX builds is of the old kind, or of the new one as far as it can be."""
    config: Any = jax.config
    before = {name: getattr(config, name) for name in FLAGS if hasattr(config, name)}
    for name in before:
        config.update(name, request.param == "new")
    yield request.param
    for name, value in before.items():
        config.update(name, value)


def looped(x: Any) -> Any:
    """A loop of unknown length."""
    return lax.while_loop(
        lambda v: v[0] < 20.0, lambda v: 0.1 * jnp.sin(v) + 1.3 * v, x
    )


def check(fun: Callable[..., Any], oracle: Callable[..., Any] | None = None) -> None:
    """The gradient, against forward mode of a function with no rules."""
    got = retape.jax.grad(fun, plan=PLAN)(X)
    np.testing.assert_allclose(got, jax.jacfwd(oracle or fun)(X), rtol=1e-10)


@pytest.mark.slow("old")
def test_a_loop_in_a_marked_function_is_opened(kind: str) -> None:
    fun = lambda x: jnp.sum(jax.checkpoint(looped)(x) ** 2)  # noqa: E731
    seen = retape.jax.explain(fun, X, plan=PLAN)
    assert (seen.loops, kind) == (1, kind)
    check(fun, lambda x: jnp.sum(looped(x) ** 2))


def test_a_marked_function_in_a_marked_function(kind: str) -> None:
    assert kind

    @jax.checkpoint
    def inner(x: Any) -> Any:
        return checkpoint_name(jnp.cos(looped(x)), "kept")

    policy = jax.checkpoint_policies.save_only_these_names("kept")
    outer = jax.checkpoint(lambda x: jnp.sum(inner(x) * x), policy=policy)
    check(outer, lambda x: jnp.sum(jnp.cos(looped(x)) * x))


def test_a_policy_sees_the_names_of_values(kind: str) -> None:
    seen: list[str] = []

    def policy(primitive: Any, *_: Any, **params: Any) -> bool:
        seen.append(str(primitive))
        return params.get("name") == "kept"

    @functools.partial(retape.jax.checkpoint, policy=policy)
    def fun(x: Any) -> Any:
        return jnp.sum(jnp.sin(checkpoint_name(jnp.sin(x), "kept")))

    got = jax.grad(fun)(X)
    np.testing.assert_allclose(got, np.cos(np.sin(X)) * np.cos(X), rtol=1e-12)
    assert "name" in seen, kind


def tripled(kind: str) -> Callable[..., Any]:
    """x * s with a derivative of three times that, and `s` no argument to derive by."""
    assert kind

    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def times(x: Any, s: float) -> Any:
        return {"out": x["in"] * s}

    def forward(x: Any, s: float) -> Any:
        return times(x, s), (jnp.full_like(x["in"], 3 * s), None)

    def backward(s: float, held: Any, cotangent: Any) -> Any:
        return ({"in": cotangent["out"] * held[0]},)

    times.defvjp(forward, backward)
    return lambda x: times({"in": x}, 1.5)["out"]


def test_a_custom_vjp_rule_is_what_is_differentiated_by(kind: str) -> None:
    times = tripled(kind)

    def fun(x: Any) -> Any:
        return jnp.sum(lax.fori_loop(0, 5, lambda i, v: jnp.sin(times(v)), x) ** 2)

    def by_hand(x: Any, tangent: Any) -> Any:
        moved = tangent
        for _ in range(5):
            moved = jnp.cos(1.5 * x) * 4.5 * moved
            x = jnp.sin(1.5 * x)
        return jnp.sum(2 * x * moved)

    expected = [by_hand(X, e) for e in np.eye(4)]
    many = jax.vmap(retape.jax.grad(fun, plan=PLAN))(np.stack([X, X]))
    np.testing.assert_allclose(many, [expected, expected], rtol=1e-10)


def test_a_rule_is_told_which_values_move(kind: str) -> None:
    told: list[tuple[bool, bool]] = []

    @jax.custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x * y

    def forward(x: Any, y: Any) -> Any:
        told.append((x.perturbed, y.perturbed))
        return x.value * y.value, (x.value, y.value)

    def backward(held: Any, cotangent: Any) -> Any:
        x, y = held
        return cotangent * y, cotangent * x

    product.defvjp(forward, backward, symbolic_zeros=True)
    fun = lambda x: jnp.sum(product(jnp.sin(looped(x)), np.arange(4.0)))  # noqa: E731
    got = retape.jax.grad(fun, plan=PLAN)(X)
    expected = jax.jacfwd(lambda x: jnp.sum(jnp.sin(looped(x)) * np.arange(4.0)))(X)
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    assert set(told) == {(True, False)}, kind


def test_a_custom_jvp_rule_is_what_is_differentiated_by(kind: str) -> None:
    assert kind

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def scaled(s: float, x: Any, y: Any) -> Any:
        return s * x + y

    @scaled.defjvp
    def _(s: float, point: Any, tangents: Any) -> Any:
        return scaled(s, *point), 2 * s * tangents[0] + tangents[1]

    def fun(x: Any) -> Any:
        body = lambda i, v: jnp.sin(scaled(0.4, v, x))  # noqa: E731
        return jnp.sum(lax.fori_loop(0, 6, body, x))

    check(fun)


def test_a_rule_whose_loops_cannot_be_transposed(kind: str) -> None:
    """Its primal is opened and reversed in its stead."""
    assert kind

    @jax.custom_jvp
    def fun(x: Any) -> Any:
        return looped(x)

    @fun.defjvp
    def _(point: Any, tangents: Any) -> Any:
        return jax.jvp(looped, point, tangents)

    check(lambda x: jnp.sum(fun(x)), lambda x: jnp.sum(looped(x)))


def test_divide_and_conquer_in_a_marked_function(kind: str) -> None:
    assert kind
    deep = retape.jax.checkpointed(looped, plan=PLAN)
    fun = jax.checkpoint(lambda x: jnp.sum(jnp.tanh(deep(x))))
    expected = jax.jacfwd(lambda x: jnp.sum(jnp.tanh(looped(x))))(X)
    np.testing.assert_allclose(jax.jit(jax.grad(fun))(X), expected, rtol=1e-10)


def test_effects_are_found_in_marked_functions(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @jax.checkpoint
    def speaks(x: Any) -> Any:
        jax.debug.print("once")
        return looped(x)

    jax.block_until_ready(retape.jax.grad(lambda x: jnp.sum(speaks(x)), plan=PLAN)(X))
    jax.effects_barrier()
    assert capsys.readouterr().out.split() == ["once"], kind


# Functions of JAX's own, and a user's ------------------------------------------------


def root_of(p: Any) -> Any:
    """The cube root, by Newton's method and the implicit derivative."""
    f = lambda x: x**3 - p  # noqa: E731
    step = lambda x: x - (x**3 - p) / (3 * x * x)  # noqa: E731

    def solve(f: Any, x: Any) -> Any:
        return lax.while_loop(lambda x: jnp.abs(f(x)) > 1e-13, step, x)

    return lax.custom_root(f, 1.0, solve, lambda g, y: y / g(1.0))


@pytest.mark.slow
def test_functions_that_some_releases_build_of_the_new_kind() -> None:
    def fun(x: Any) -> Any:
        def turn(v: Any) -> Any:
            return 1.3 * jnp.ldexp(v, 0) + 0.1 * jnp.einsum("i,i->i", v, x)

        y = lax.while_loop(lambda v: v[0] < 20.0, turn, x)
        return jnp.einsum("i,i->", y, x) * root_of(x[0])

    assert "call_hi_primitive" not in retape.jax.show(fun, X, plan=PLAN)
    check(fun)


def test_policies_see_the_products_of_einsum() -> None:
    seen: list[str] = []

    def policy(primitive: Any, *_: Any, **__: Any) -> bool:
        seen.append(str(primitive))
        return True

    product = lambda x: jnp.einsum("ij,j->", jnp.outer(x, x), jnp.sin(x))  # noqa: E731
    jax.grad(retape.jax.checkpoint(product, policy=policy))(X)
    assert "dot_general" in seen


def new_kind(aval: Any) -> Any:
    """A primitive of a user's own: x^3, with five times x for a derivative."""
    base = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive

    class Cube(base):
        def __init__(self, aval: Any) -> None:
            self.in_avals, self.out_aval, self.params = (aval,), aval, {"aval": aval}
            super().__init__()

        def expand(self, x: Any) -> Any:
            return x**3

        def vjp_fwd(self, nzs: Any, /, x: Any) -> Any:
            return self(x), x

        def vjp_bwd_retval(self, held: Any, cotangent: Any, /) -> Any:
            return (5 * held * cotangent,)

        def jvp(self, point: Any, tangents: Any) -> Any:
            return self(*point), 5 * point[0] * tangents[0]

    return Cube(aval)


def test_a_primitive_of_a_user_s_own_keeps_its_rules() -> None:
    def fun(x: Any) -> Any:
        turn = lambda v: 1.5 * jnp.abs(v) + 0.01 * new_kind(jax.typeof(v))(v)  # noqa: E731
        return jnp.sum(lax.while_loop(lambda v: v[0] < 5.0, turn, x))

    slope, v = np.ones(4), X
    while v[0] < 5.0:
        slope, v = slope * (1.5 + 0.05 * v), 1.5 * v + 0.01 * v**3
    got = retape.jax.grad(fun, plan=PLAN)(X)
    np.testing.assert_allclose(got, slope, rtol=1e-12)


# Marks that the layers' tools make themselves -------------------------------------


WIDE = np.ones(4096)


@jax.custom_jvp
def bent(x: Any) -> Any:
    return jnp.tanh(x)


bent.defjvps(lambda t, y, x: t * (1 - y * y))


def step(carry: Any, _: Any = None) -> tuple[Any, None]:
    """A step with a rule and a mark of its own."""
    return jax.checkpoint(lambda c: bent(jnp.sin(bent(c))))(carry), None


def deep(scan: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(scan(step, x, None, length=24)[0])


def carries(fun: Callable[..., Any]) -> float:
    """Temporaries of the gradient, in carries."""
    compiled = jax.jit(jax.grad(fun)).lower(WIDE).compile()
    return compiled.memory_analysis().temp_size_in_bytes / WIDE.nbytes


@pytest.mark.slow("old")
def test_segments_and_a_budget_for_them_keep_as_few_carries(kind: str) -> None:
    assert kind
    segments = functools.partial(retape.jax.scan, segment_length=4)
    assert carries(deep(segments)) < 24 / 4 + 4 + 4 < carries(deep(lax.scan))
    nnx = pytest.importorskip("flax.nnx")
    fitted = importlib.import_module("retape.nnx").remat_scan(
        lambda x: step(x)[0],
        in_axes=nnx.Carry,
        out_axes=nnx.Carry,
        length=24,
        memory=16 * WIDE.nbytes,
    )
    assert carries(lambda x: jnp.sum(fitted(x))) < 16


def test_names_in_a_loop_are_found(kind: str) -> None:
    """A name that is there is not warned of: that would be an error here."""
    assert kind
    step = lambda c, _: (checkpoint_name(jnp.sin(c), "kept"), None)  # noqa: E731
    policy = retape.jax.policies.names(save=["kept"])
    run = lambda x: jnp.sum(retape.jax.scan(step, x, length=4, policy=policy)[0])  # noqa: E731
    assert np.isfinite(jax.grad(run)(X)).all()


def test_what_became_plain_is_not_expanded_for_ever(kind: str) -> None:
    """JAX's note that a branch has such primitives outlives them (0.12.0)."""
    assert kind
    kernel = 0.1 * jnp.ones((1, 1, 3))

    def layer(x: Any) -> Any:
        return jax.nn.relu(lax.conv_general_dilated(x, kernel, (1,), "SAME"))

    marked = retape.jax.checkpoint(
        lambda x: jnp.sum(layer(layer(layer(x)))), policy=retape.within(1)
    )
    with pytest.raises(retape.BudgetError, match="cannot be"):
        jax.grad(marked)(jnp.ones((1, 1, 512)))
