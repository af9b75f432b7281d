"""Every form of program that the tests have, in the device's form of a sweep, on a CPU.

The tests force the device's form on a few of them, for the time that compiling takes.
Here it is forced on all, loops of any size opened as in the tests, and every gradient
is held against JAX's forward mode, and against plain reverse mode of the same program
with Python's loops.

Run from the project's root: `python -m benchmarks.accelerators.forms [NAME ...]
[--stage N]`. It ends with how many are right, and fails if not all are.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from functools import partial

import jax
import jax.numpy as jnp
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import (
    Form,
    Unrolled,
    assert_close,
    forward_gradient,
)

import retape
import retape.jax
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.calls import _rules


def checked(form: Form, stage: int) -> None:
    """Compare a form's value and gradient.

    Raises:
        AssertionError: If they are not those of the oracles.
    """
    plan = retape.fixed_space(snapshots=2, stage=stage)
    args, fun = form.arguments(), form.with_loops(jax.lax)
    both = retape.jax.value_and_grad(fun, plan=plan, loops="device")
    value, gradient = both(*args)
    assert_close(value, jnp.asarray(fun(*args)))
    assert_close(gradient, forward_gradient(fun, *args))
    if form.unrolls:
        assert_close(gradient, jax.grad(form.with_loops(Unrolled))(*args))


def main() -> None:
    """Check all forms, or those named, and say how many are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="forms, by name; all by default")
    parser.add_argument("--stage", type=int, default=2, help="steps in a stage")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    vars(_rules)["compile_program"] = partial(compile_program, grain=0)
    wanted = [f for f in FORMS if not given.names or f.name in given.names]
    wrong: list[str] = []
    for form in wanted:
        try:
            checked(form, given.stage)
        except Exception as error:  # noqa: BLE001
            wrong.append(form.name)
            lines = str(error).strip().splitlines() or [""]
            print(f"{form.name}: {type(error).__name__}: {lines[0]}", flush=True)
    right = len(wanted) - len(wrong)
    print(f"{right} of {len(wanted)} right, in stages of {given.stage}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
