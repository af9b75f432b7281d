"""The checker of rewritten jaxprs catches small lies."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from retape.engines.jaxpr.jaxprs._check import check_rewritten, check_scope


def program(x, y):
    return lax.sin(x) * y, lax.cond(y > 0, lax.cos, lax.neg, y)


ONE, TWO = jnp.ones(2, jnp.float32), jnp.float32(2.0)
BEFORE = jax.make_jaxpr(program)(ONE, TWO)


def other(**changes):
    """A program like the one before, but for one thing."""
    return BEFORE.replace(jaxpr=BEFORE.jaxpr.replace(**changes))


def traced_again(fun=program, x=ONE, y=TWO):
    return jax.make_jaxpr(fun)(x, y)


def effect(x, y):
    jax.debug.print("{}", x)
    return program(x, y)


@pytest.mark.parametrize("after", [BEFORE, traced_again()], ids=["it", "like it"])
def test_the_same_program_may_stand_in_its_place(after):
    check_rewritten(BEFORE, after)


LIES = {
    "other inputs": lambda: traced_again(x=TWO),
    "other outputs": lambda: other(outvars=BEFORE.jaxpr.outvars[:1]),
    "other inputs: fewer": lambda: jax.make_jaxpr(lambda x: program(x, x))(TWO),
    "an effect that was not there": lambda: traced_again(effect),
    "before it is made": lambda: other(eqns=BEFORE.eqns[::-1]),
    "returned and never made": lambda: other(eqns=BEFORE.eqns[:1]),
    "made twice": lambda: other(eqns=[BEFORE.eqns[0], *BEFORE.eqns]),
}


@pytest.mark.parametrize("said", LIES)
def test_a_lie_is_caught(said):
    with pytest.raises(AssertionError, match=said.partition(":")[0]):
        check_rewritten(BEFORE, LIES[said]())


def test_inner_programs_are_looked_at():
    cond = next(e for e in BEFORE.eqns if e.primitive.name == "cond")
    first, *others = cond.params["branches"]
    empty = first.replace(jaxpr=first.jaxpr.replace(eqns=[]))
    lie = cond.replace(params=cond.params | {"branches": (empty, *others)})
    eqns = [lie if e is cond else e for e in BEFORE.eqns]
    with pytest.raises(AssertionError, match="returned and never made"):
        check_scope(BEFORE.jaxpr.replace(eqns=eqns))
