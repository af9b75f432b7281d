"""The checker of lowering catches small lies."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from retape.engines.jaxpr.ir._ir import Lit, Var
from retape.engines.jaxpr.lower._check import check_lowered
from retape.engines.jaxpr.lower._lower_jaxpr import lower_jaxpr


def program(x, n):
    held = x + np.arange(3.0, dtype=np.float32)
    return lax.while_loop(lambda x: x[0] > 0.1, lambda x: 0.5 * x, held), 2 * n


JAXPR = jax.make_jaxpr(program)(jnp.ones(3), 4)
ACTIVE = [True, False]


def lowered():
    return lower_jaxpr(JAXPR, ACTIVE, grain=0)


def passive(var):
    return Var(var.aval, active=False)


LIES = {
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


def test_blocks_stand_for_their_jaxpr():
    check_lowered(JAXPR, ACTIVE, *lowered())


@pytest.mark.parametrize("said", LIES)
def test_a_lie_is_caught(said):
    with pytest.raises(AssertionError, match=said):
        check_lowered(JAXPR, ACTIVE, *LIES[said](*lowered()))
