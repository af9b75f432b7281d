"""The table of traits: rows hold together, and every row is of a primitive there is."""

import jax
import jax.numpy as jnp
import pytest
from jax.interpreters import ad

import retape
import retape.jax
from tests.engines.jaxpr.support.seams import TABLE, Again, Also, Kernel

pytestmark = pytest.mark.release


def test_whoever_may_stand_in_place_of_its_call_has_a_body():
    inline = [row for row in TABLE.values() if row.also & Also.INLINE]
    assert inline and all(row.body for row in inline)


def test_whatever_is_made_again_by_every_block_takes_no_flops():
    rows = [row for row in TABLE.values() if row.again is Again.MADE_UP]
    assert rows and not any(row.flops for row in rows)


def test_an_operation_without_a_row_is_left_alone():
    """It is never computed again, and in no kernel; nothing is looked for in it."""
    row = type(TABLE["add"])()
    assert row.again is Again.NEVER and row.kernel is Kernel.NEVER
    assert row.body is None and not row.also


def test_what_has_no_derivative_has_that_of_a_constant_in_jax():
    ours = {"retape_aux_output"}
    named = {name for name, row in TABLE.items() if Also.NO_DERIVATIVE in row.also}
    assert named > ours
    assert named - ours <= {primitive.name for primitive in ad.primitive_jvps}


# JAX has a rule for `nextafter` from 0.12 on (the result moves with the first
# argument) and none for `zeta` in any release from 0.10 to 0.12.
def test_an_operation_that_jax_does_not_differentiate_is_no_constant():
    with pytest.raises(retape.UnsupportedError, match="operation `zeta` at"):
        retape.jax.grad(lambda x: jax.lax.zeta(2 * x, 9.0))(1.5)


def test_nextafter_has_the_derivative_that_this_release_gives_it_or_none():
    def function(x):
        return jnp.nextafter(2 * x, 9.0)

    if "nextafter" in {primitive.name for primitive in ad.primitive_jvps}:
        assert retape.jax.grad(function)(1.5) == jax.grad(function)(1.5) == 2
    else:
        with pytest.raises(retape.UnsupportedError, match="operation `nextafter` at"):
            retape.jax.grad(function)(1.5)
