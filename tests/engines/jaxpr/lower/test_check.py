"""The checkers of jaxprs and of lowering catch small lies."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.seams import Lit, Var

ONE, TWO = jnp.ones(2, jnp.float32), jnp.float32(2.0)


def straight(x, y):
    return lax.sin(x) * y, lax.cond(y > 0, lax.cos, lax.neg, y)


def traced_again(fun=straight, x=ONE, y=TWO):
    return lambda *_: jax.make_jaxpr(fun)(x, y)


def effect(x, y):
    jax.debug.print("{}", x)
    return straight(x, y)


def changed(**changes):
    """The program as it was, but for one thing."""

    def lie(made, *_):
        inner = made.jaxpr
        return made.replace(
            jaxpr=inner.replace(**{k: f(inner) for k, f in changes.items()})
        )

    return lie


def an_empty_branch(jaxpr):
    cond = next(e for e in jaxpr.eqns if e.primitive.name == "cond")
    first, *others = cond.params["branches"]
    empty = first.replace(jaxpr=first.jaxpr.replace(eqns=[]))
    lie = cond.replace(params=cond.params | {"branches": (empty, *others)})
    return [lie if e is cond else e for e in jaxpr.eqns]


OF_JAXPRS = {
    "other inputs": traced_again(x=TWO),
    "other outputs": changed(outvars=lambda j: j.outvars[:1]),
    "other inputs: fewer": lambda *_: jax.make_jaxpr(lambda x: straight(x, x))(TWO),
    "an effect that was not there": traced_again(effect),
    "before it is made": changed(eqns=lambda j: j.eqns[::-1]),
    "returned and never made": changed(eqns=lambda j: j.eqns[:1]),
    "made twice": changed(eqns=lambda j: [j.eqns[0], *j.eqns]),
    "returned and never made: inside": changed(eqns=an_empty_branch),
}


@pytest.mark.parametrize("name", ["on_device", "hoist_pvary", "while_to_scan"])
@pytest.mark.parametrize("said", OF_JAXPRS)
def test_a_lie_about_a_jaxpr_is_caught(name, said):
    with seams.lying(name, traced_again()):
        seams.compiled(straight, ONE, TWO)
    lie = seams.lying(name, OF_JAXPRS[said])
    with lie, pytest.raises(AssertionError, match=said.partition(":")[0]):
        seams.compiled(straight, ONE, TWO)


# Blocks -----------------------------------------------------------------------------


def program(x, n):
    held = x + np.arange(3.0, dtype=np.float32)
    return lax.while_loop(lambda x: x[0] > 0.1, lambda x: 0.5 * x, held), 2 * n


def passive(var):
    return Var(var.aval, active=False)


OF_BLOCKS = {
    "other inputs": lambda p, c: (replace(p, operands=p.operands[1:]), c),
    "other active inputs": lambda p, c: (
        replace(p, operands=(passive(p.operands[0]), *p.operands[1:])),
        c,
    ),
    "a constant without a value": lambda p, c: (p, []),
    "a constant of another shape": lambda p, c: (p, [np.ones(2)]),
    "other outputs": lambda p, c: (replace(p, outs=p.outs[::-1]), c),
    "derivative is lost": lambda p, c: (
        replace(p, outs=(Lit(np.zeros(3), p.outs[0].aval), p.outs[1])),
        c,
    ),
}


@pytest.mark.parametrize("said", OF_BLOCKS)
def test_a_lie_about_blocks_is_caught(said):
    seams.compiled(program, jnp.ones(3), 4)
    lie = seams.lying("lower_jaxpr", lambda made, *_: OF_BLOCKS[said](*made))
    with lie, pytest.raises(AssertionError, match=said):
        seams.compiled(program, jnp.ones(3), 4)
