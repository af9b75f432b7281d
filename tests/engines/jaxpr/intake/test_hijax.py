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
from tests.judges.pairwise import dealt

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


# Each row makes a function, under the flags, and has one with no rules beside it.

Function = Callable[[Any], Any]
ROWS: dict[str, tuple[Callable[[], Function], Function, Any]] = {}


def row(plain: Function, grad: Any = None) -> Any:
    def register(make: Callable[[], Function]) -> Any:
        ours = functools.partial(retape.jax.grad, plan=PLAN)
        ROWS[make.__name__] = make, plain, grad or ours
        return make

    return register


@row(looped)
def a_loop_in_a_marked_function() -> Function:
    fun = jax.checkpoint(looped)
    assert retape.jax.explain(lambda x: jnp.sum(fun(x)), X, plan=PLAN).loops == 1
    return fun


@row(lambda x: jnp.cos(looped(x)) * x)
def a_marked_function_in_a_marked_function() -> Function:
    inner = jax.checkpoint(lambda x: checkpoint_name(jnp.cos(looped(x)), "kept"))
    policy = jax.checkpoint_policies.save_only_these_names("kept")
    return jax.checkpoint(lambda x: inner(x) * x, policy=policy)


@row(lambda x: jnp.tanh(looped(x)), grad=lambda f: jax.jit(jax.grad(f)))
def divide_and_conquer_in_a_marked_function() -> Function:
    deep = retape.jax.checkpointed(looped, plan=PLAN)
    return jax.checkpoint(lambda x: jnp.tanh(deep(x)))


def five_times(x: Any) -> Any:
    """The derivative of each product is three times what it is."""
    for _ in range(5):
        x = jnp.sin(4.5 * x - 3.0 * lax.stop_gradient(x))
    return x**2


@row(five_times)
def a_rule_for_reverse_mode() -> Function:
    """x * s with a derivative of three times that, and `s` no argument to derive by."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def times(x: Any, s: float) -> Any:
        return {"out": x["in"] * s}

    def forward(x: Any, s: float) -> Any:
        return times(x, s), (jnp.full_like(x["in"], 3 * s), None)

    def backward(s: float, held: Any, cotangent: Any) -> Any:
        return ({"in": cotangent["out"] * held[0]},)

    times.defvjp(forward, backward)
    turn = lambda i, v: jnp.sin(times({"in": v}, 1.5)["out"])  # noqa: E731
    return lambda x: lax.fori_loop(0, 5, turn, x) ** 2


@row(lambda x: jnp.sin(looped(x)) * np.arange(4.0))
def a_rule_that_is_told_what_moves() -> Function:
    @jax.custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x * y

    def forward(x: Any, y: Any) -> Any:
        assert (x.perturbed, y.perturbed) == (True, False)
        return x.value * y.value, (x.value, y.value)

    def backward(held: Any, cotangent: Any) -> Any:
        x, y = held
        return cotangent * y, cotangent * x

    product.defvjp(forward, backward, symbolic_zeros=True)
    return lambda x: product(jnp.sin(looped(x)), np.arange(4.0))


def six_times(x: Any) -> Any:
    v = x
    for _ in range(6):
        v = jnp.sin(0.8 * v - 0.4 * lax.stop_gradient(v) + x)
    return v


@row(six_times)
def a_rule_for_forward_mode() -> Function:
    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def scaled(s: float, x: Any, y: Any) -> Any:
        return s * x + y

    @scaled.defjvp
    def _(s: float, point: Any, tangents: Any) -> Any:
        return scaled(s, *point), 2 * s * tangents[0] + tangents[1]

    return lambda x: lax.fori_loop(0, 6, lambda i, v: jnp.sin(scaled(0.4, v, x)), x)


@row(looped)
def a_rule_whose_loops_cannot_be_transposed() -> Function:
    """Its primal is opened and reversed in its stead."""
    fun = jax.custom_jvp(looped)
    fun.defjvp(lambda point, tangents: jax.jvp(looped, point, tangents))
    return fun


def root_of(p: Any) -> Any:
    """The cube root, by Newton's method and the implicit derivative."""
    f = lambda x: x**3 - p  # noqa: E731
    step = lambda x: x - (x**3 - p) / (3 * x * x)  # noqa: E731

    def solve(f: Any, x: Any) -> Any:
        return lax.while_loop(lambda x: jnp.abs(f(x)) > 1e-13, step, x)

    return lax.custom_root(f, 1.0, solve, lambda g, y: y / g(1.0))


def of_jax(x: Any) -> Any:
    def turn(v: Any) -> Any:
        return 1.3 * jnp.ldexp(v, 0) + 0.1 * jnp.einsum("i,i->i", v, x)

    y = lax.while_loop(lambda v: v[0] < 20.0, turn, x)
    return jnp.einsum("i,i->", y, x) * root_of(x[0])


@row(of_jax)
def functions_that_some_releases_build_of_the_new_kind() -> Function:
    assert "call_hi_primitive" not in retape.jax.show(of_jax, X, plan=PLAN)
    return of_jax


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


def cubes(cube: Function) -> Function:
    turn = lambda v: 1.5 * jnp.abs(v) + 0.01 * cube(v)  # noqa: E731
    return lambda x: lax.while_loop(lambda v: v[0] < 5.0, turn, x)


def fives(v: Any) -> Any:
    """The cube, with five times x for a derivative."""
    still = lax.stop_gradient
    return still(v**3) + 2.5 * (v * v - still(v * v))


@row(cubes(fives))
def a_primitive_of_a_user_s_own() -> Function:
    return cubes(lambda v: new_kind(jax.typeof(v))(v))


@pytest.mark.slow(
    "functions_that_some_releases_build_of_the_new_kind-old",
    "functions_that_some_releases_build_of_the_new_kind-new",
    "a_marked_function_in_a_marked_function-old",
    "a_rule_for_reverse_mode-old",
)
@pytest.mark.parametrize(
    ("name", "kind"), dealt(list(ROWS), ["new", "old"]), indirect=["kind"]
)
def test_gradients_are_those_of_forward_mode_without_rules(
    kind: str, name: str
) -> None:
    assert kind
    make, plain, grad = ROWS[name]
    fun = make()
    want = jax.jacfwd(lambda x: jnp.sum(plain(x)))(X)
    np.testing.assert_allclose(grad(lambda x: jnp.sum(fun(x)))(X), want, rtol=1e-10)


# What is said, seen and kept ----------------------------------------------------------


@pytest.mark.slow("old")
def test_policies_see_names_and_the_products_of_einsum(kind: str) -> None:
    seen: list[str] = []

    def policy(primitive: Any, *_: Any, **params: Any) -> bool:
        seen.append(str(primitive))
        return params.get("name") == "kept"

    @functools.partial(retape.jax.checkpoint, policy=policy)
    def fun(x: Any) -> Any:
        product = jnp.einsum("ij,j->", jnp.outer(x, x), jnp.sin(x))
        return product + jnp.sum(jnp.sin(checkpoint_name(jnp.sin(x), "kept")))

    plain = lambda x: jnp.outer(x, x) @ jnp.sin(x)  # noqa: E731
    want = jax.grad(lambda x: plain(x).sum() + jnp.sum(jnp.sin(jnp.sin(x))))(X)
    np.testing.assert_allclose(jax.grad(fun)(X), want, rtol=1e-12)
    assert {"name", "dot_general"} <= set(seen), kind


def test_names_in_a_loop_are_found(kind: str) -> None:
    """A name that is there is not warned of: that would be an error here."""
    assert kind
    step = lambda c, _: (checkpoint_name(jnp.sin(c), "kept"), None)  # noqa: E731
    policy = retape.jax.policies.names(save=["kept"])
    run = lambda x: jnp.sum(retape.jax.scan(step, x, length=4, policy=policy)[0])  # noqa: E731
    assert np.isfinite(jax.grad(run)(X)).all()


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


WIDE = np.ones(4096)


@jax.custom_jvp
def bent(x: Any) -> Any:
    return jnp.tanh(x)


bent.defjvps(lambda t, y, x: t * (1 - y * y))


def step(carry: Any, _: Any = None) -> tuple[Any, None]:
    """A step with a rule and a mark of its own."""
    return jax.checkpoint(lambda c: bent(jnp.sin(bent(c))))(carry), None


def carries(scan: Any) -> float:
    """Temporaries of the gradient of such steps, in carries."""
    deep = lambda x: jnp.sum(scan(step, x, None, length=24)[0])  # noqa: E731
    compiled = jax.jit(jax.grad(deep)).lower(WIDE).compile()
    return compiled.memory_analysis().temp_size_in_bytes / WIDE.nbytes


@pytest.mark.slow("old")
def test_segments_and_a_budget_for_them_keep_as_few_carries(kind: str) -> None:
    assert kind
    segments = functools.partial(retape.jax.scan, segment_length=4)
    assert carries(segments) < 24 / 4 + 4 + 4 < carries(lax.scan)
    nnx = pytest.importorskip("flax.nnx")
    fitted = importlib.import_module("retape.nnx").remat_scan(
        lambda x: step(x)[0],
        in_axes=nnx.Carry,
        out_axes=nnx.Carry,
        length=24,
        memory=16 * WIDE.nbytes,
    )
    assert carries(lambda step, x, *_, **__: (fitted(x), None)) < 16


@pytest.mark.slow("old")
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
