"""One evaluator for every domain of values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retape.engines.jaxpr.jaxprs._evaluate import (
    Environment,
    bind,
    dce,
    dce_inputs,
    evaluate,
    restricted,
)


def program(x, y):
    return jnp.sin(x) * 2.0 + jnp.arange(3.0), y


JAXPR = jax.make_jaxpr(program)(jnp.ones(3), jnp.ones(()))
X, Y = jnp.array([0.1, 0.2, 0.3]), jnp.float32(4.0)


def test_it_means_what_jax_means():
    got = evaluate(JAXPR, (X, Y))
    want = jax.core.eval_jaxpr(JAXPR.jaxpr, JAXPR.consts, X, Y)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_rule_may_replace_an_equation():
    def rule(eqn, ins):
        return [jnp.cos(*ins)] if eqn.primitive.name == "sin" else bind(eqn, ins)

    np.testing.assert_allclose(
        evaluate(JAXPR, (X, Y), rule)[0], jnp.cos(X) * 2.0 + jnp.arange(3.0), rtol=1e-6
    )


def test_values_may_be_of_any_domain():
    def depth(eqn, ins):
        return [1 + max(ins, default=0)] * len(eqn.outvars)

    env = Environment(literal=lambda _: 0)
    assert (
        evaluate(JAXPR, (0, 7), depth, consts=[0] * len(JAXPR.consts), env=env)[1] == 7
    )
    assert env.read(JAXPR.jaxpr.outvars[0]) == 3


@pytest.mark.parametrize("args", [(X,), (X, Y, Y)])
def test_it_wants_as_many_values_as_there_are_inputs(args):
    with pytest.raises(ValueError, match="zip"):
        evaluate(JAXPR, args)


def test_a_function_of_some_of_its_values_is_differentiated_by_those_alone():
    along = restricted(lambda a, b, c: a * b * c, [2.0, 3.0, 5.0], [2, 0])
    assert along(7.0, 11.0) == 11.0 * 3.0 * 7.0
    np.testing.assert_allclose(jax.grad(along)(7.0, 11.0), 33.0)


def test_what_nobody_reads_goes_and_inputs_stay_unless_asked():
    jaxpr = jax.make_jaxpr(lambda x, y: (jnp.exp(x), jnp.sin(y)))(1.0, 2.0)
    dead = jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(outvars=jaxpr.jaxpr.outvars[1:]))
    assert [e.primitive.name for e in dce(dead).eqns] == ["sin"]
    assert len(dce(dead).in_avals) == 2
    slim, needed = dce_inputs(jaxpr, [False, True])
    assert needed == [False, True] and len(slim.in_avals) == 1
