"""`memory=` is understood where a plan is: the same budget, however it is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape import native

DECAY = retape.Program(lambda x, k: 0.9 * x, lambda x, k, g: 0.9 * g)
X0, BYTES = np.ones(100), 20_000


def of_program(call):
    return lambda **how: call(DECAY, X0, seed=np.copy, steps=300, **how)


def waited(**how):
    run = retape.forward(DECAY, X0, steps=300, **how)
    return run.gradient(np.copy).report


def looped(x):
    step = lambda i, y: jnp.sin(y) + 0.1 * y  # noqa: E731
    return jnp.sum(jax.lax.fori_loop(0, 300, step, x))


def in_jax(call):
    return lambda **how: call(looped, jnp.ones(100), **how)


def text_of(call):
    """What a transformation makes of it, as a program's text."""
    return lambda **how: str(jax.make_jaxpr(call(**how))(jnp.ones(100)))


def loop(name):
    step = lambda i, y: jnp.sin(y) + 0.1 * y  # noqa: E731
    body = lambda y: (y[0] + 1, jnp.sin(y[1]))  # noqa: E731
    calls = {
        "fori_loop": lambda x, **how: retape.jax.fori_loop(0, 300, step, x, **how),
        "scan": lambda x, **how: retape.jax.scan(
            lambda y, _: (jnp.sin(y), None), x, length=300, **how
        )[0],
        "while_loop": lambda x, **how: retape.jax.while_loop(
            lambda y: y[0] < 300, body, (0, x), **how
        )[1],
    }
    return text_of(lambda **how: jax.grad(lambda x: jnp.sum(calls[name](x, **how))))


def of_native(derivative):
    def reported(**how):
        made = derivative(power, engine="interpreter", **how)
        return native.measure(made, 1.1).reports

    return reported


def power(x):
    y = 1.0
    for _ in range(300):
        y *= x
    return y


ENTRANCES = {
    "adjoint": lambda **how: of_program(retape.adjoint)(**how).report,
    "measure": lambda **how: of_program(retape.measure)(**how).report.advances,
    "diagnose": lambda **how: of_program(retape.diagnose)(**how).report,
    "explain": lambda **how: retape.explain(DECAY, X0, steps=300, **how),
    "forward": waited,
    "jax.grad": text_of(lambda **how: retape.jax.grad(looped, **how)),
    "jax.value_and_grad": text_of(
        lambda **how: retape.jax.value_and_grad(looped, **how)
    ),
    "jax.vjp": text_of(
        lambda **how: lambda x: retape.jax.vjp(looped, x, **how)[1](1.0)
    ),
    "jax.checkpointed": text_of(
        lambda **how: retape.jax.grad(retape.jax.checkpointed(looped, **how))
    ),
    "jax.explain": lambda **how: in_jax(retape.jax.explain)(**how).prediction,
    "jax.measure": lambda **how: in_jax(retape.jax.measure)(**how).report.advances,
    "jax.scan": loop("scan"),
    "jax.fori_loop": loop("fori_loop"),
    "jax.while_loop": loop("while_loop"),
    "native.grad": of_native(native.grad),
    "native.value_and_grad": of_native(native.value_and_grad),
}
CORE = ("adjoint", "measure", "diagnose", "explain", "forward")


# What is slow here is tracing. That each of them reads its budget is also asked by the
# refusals below; what a budget becomes is one thing for all that trace.
@pytest.mark.slow("jax.value_and_grad", "jax.vjp", "jax.checkpointed", "jax.scan")
@pytest.mark.slow("jax.explain", "jax.measure", "jax.fori_loop", "jax.while_loop")
@pytest.mark.parametrize("name", ENTRANCES)
def test_a_budget_is_the_plan_within_it(name):
    call = ENTRANCES[name]
    wanted = call(plan=retape.within(BYTES))
    assert call(memory="20 kB") == wanted != call()


@pytest.mark.parametrize("memory", [BYTES, 20_000.0, 20_000.9, "20000", "0.02 MB"])
@pytest.mark.parametrize("name", CORE)
def test_a_budget_may_be_written_in_many_ways(name, memory):
    call = ENTRANCES[name]
    assert call(memory=memory) == call(plan=retape.within(BYTES))


@pytest.mark.parametrize("name", ENTRANCES)
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"memory": "1 MB", "plan": retape.segments()}, "Leave one of them out"),
        ({"memory": "much"}, "`memory='much'` is not an amount of memory"),
        ({"memory": 0.5}, "`memory=0.5` is not an amount of memory"),
    ],
)
def test_what_is_no_budget_is_refused(name, how, says):
    with pytest.raises(retape.PlanError, match=says):
        ENTRANCES[name](**how)
