"""A run in chunks: the program's own results, however its loops nest."""

from __future__ import annotations

import jax
import pytest

from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import differentiable
from retape.engines.jaxpr.sweep._device_sweep import chunked_run
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import assert_close

BY_NAME = {f.name: f for f in FORMS}


@pytest.mark.parametrize(
    "name", ["two_inner_loops", "loops_in_sequence", "zero_trips", "ys_feed_a_while"]
)
def test_a_run_in_chunks_returns_what_the_program_does(name: str) -> None:
    form = BY_NAME[name]
    jaxpr = jax.make_jaxpr(form.with_loops(jax.lax))(*form.arguments())
    active = list(map(differentiable, jaxpr.in_avals))
    compiled = compile_program(jaxpr, active, grain=0)
    given = [*jax.tree.leaves(form.arguments()), *compiled.constants]
    found = jax.jit(lambda *values: chunked_run(compiled, values))(*given)
    assert_close(found, jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *given))
