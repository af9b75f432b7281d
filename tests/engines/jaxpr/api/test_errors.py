"""What users get wrong: as JAX has it, by their own names, and without end.

Calls that are refused by a name of ours stand in `tests/hints`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax


def says(*parts: str) -> str:
    """A pattern: these texts, in order."""
    return ".*".join(map(re.escape, parts))


@pytest.mark.parametrize("fun", [lambda x: x + 1j, lambda x: x * jnp.ones(2)])
def test_what_we_refuse_jax_refuses(fun: Any) -> None:
    """And with the same builtin, so that `except TypeError` goes on working."""
    for gradient in (jax.grad, retape.jax.grad):
        with pytest.raises(TypeError):
            gradient(fun)(1.0)


# The user's own -----------------------------------------------------------------------


@pytest.mark.slow
def test_what_leads_only_to_a_test_needs_no_derivative() -> None:
    """As in plain JAX, where the test of a loop is not differentiated."""

    def going(v: Any) -> Any:
        small = lambda v: np.abs(v) < 5  # noqa: E731
        return jax.pure_callback(small, jax.ShapeDtypeStruct((), bool), v)

    def fun(x: Any) -> Any:
        return jax.lax.while_loop(going, lambda v: v * 1.5, x)

    for stage in (1, 2):
        plan = retape.fixed_space(snapshots=2, stage=stage)
        assert retape.jax.grad(fun, plan=plan)(1.0) == 1.5**4


def test_the_users_own_errors_pass_through() -> None:
    def fun(x: Any) -> Any:
        raise KeyError(f"mine: {x.shape}")

    with pytest.raises(KeyError, match="mine"):
        retape.jax.grad(fun)(1.0)


def looking(params: Any, scale: Any) -> Any:
    """Look at the value of a traced array."""
    return params["w"].sum() if params["w"].sum() > 0 else scale.sum()


@pytest.mark.parametrize(
    "gradient",
    [
        retape.jax.grad(looking),
        jax.jit(retape.jax.grad(looking)),
        jax.grad(retape.jax.checkpointed(looking)),
        jax.grad(retape.jax.checkpoint(looking)),
    ],
    ids=["grad", "jit", "checkpointed", "checkpoint"],
)
def test_an_error_names_the_user_s_function_and_argument(gradient: Any) -> None:
    said = r"function looking at .*test_errors.py(.|\n)*argument params\['w'\]"
    with pytest.raises(jax.errors.TracerBoolConversionError, match=said):
        gradient({"w": jnp.ones(3)}, jnp.ones(3))


# Interruption -----------------------------------------------------------------------

ENDLESS = """
    import signal
    import jax, retape, retape.jax
    # A shell may have started us with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    endless = lambda x: jax.lax.while_loop(lambda v: v > -1.0, lambda v: v * x, x)
    gradient = retape.jax.grad(endless, plan=retape.fixed_space(snapshots=3))
    print("running", flush=True)
    interrupted = None
    while not isinstance(interrupted, retape.RetapeError):
        try:
            jax.block_until_ready(gradient(1.0))
        except KeyboardInterrupt as error:  # perhaps while it is still compiled
            interrupted = error
    print(isinstance(interrupted, retape.RetapeError), interrupted, flush=True)
"""


def interrupted_until_it_ends(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process prints that is sent Ctrl-C again and again, however slow it is."""
    for _ in range(60):
        try:
            return process.communicate(timeout=3)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    raise AssertionError("three minutes of Ctrl-C did not end the run")


@pytest.mark.slow
def test_control_c_in_a_loop_that_never_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ENDLESS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            out, err = interrupted_until_it_ends(process)
        finally:
            process.kill()
    # Not asserted: the exit status, since ending Python under a running program can
    # abort it.
    assert re.match(says("True interrupted after", "bound its trip count."), out), err
